"""Layer 1: deadlines, the one wait, errors and events. Knows nothing of processes, envs or learning."""
