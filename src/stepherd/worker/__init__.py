"""Layer 4, the child's side: one worker process that builds a few envs and steps them when the bell rings."""
