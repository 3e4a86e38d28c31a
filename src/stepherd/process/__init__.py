"""Layer 2: operating system processes: start, watch, end and account for them. Standard library only."""
