"""Layer 3: learning. Arrays in, actions and statistics out; no env, file, logger or process in here."""
