"""Layer 5: where a pool of envs and a learner meet: configuration, collection, checkpoints, statistics."""
