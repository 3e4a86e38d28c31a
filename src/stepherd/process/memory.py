"""How much memory a process has in use, where the system tells without a library."""

from __future__ import annotations

import os
from pathlib import Path


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of process `pid`; `None` where it cannot be told (no `/proc`, or it has ended)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
