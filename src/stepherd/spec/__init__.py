"""Layer 2: what an env is. One vocabulary for all simulators; numpy only."""
