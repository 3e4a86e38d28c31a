"""Layer 4, the parent's side: owns worker processes, hands out actions, takes in steps. Knows no simulator."""
