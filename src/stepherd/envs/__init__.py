"""Layer 3: simulators. Only workers import this; nothing here knows of processes, managers or learning."""
