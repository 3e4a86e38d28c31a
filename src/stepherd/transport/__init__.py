"""Layer 3: what lies between a manager and a worker: a block (the data) and a bell (the control)."""
