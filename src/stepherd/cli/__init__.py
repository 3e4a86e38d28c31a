"""Layer 6: the command line. Puts the parts together and talks to the person at the terminal."""

from stepherd.cli.main import main

__all__ = ["main"]
