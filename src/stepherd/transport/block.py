"""The block: anonymous shared memory between one manager and one worker.

It has no name, so nothing is left in `/dev/shm` after a SIGKILL, and it counts against no container's limit on that
folder. It is freed when the last mapping is gone. This is one of three modules that ask which platform they are on.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile

POISON = 0xFF  # fresh memory reads as NaN, 255 or -1, so data that nobody wrote is seen at once


class Block:
    """A mapping of shared memory. Owns the mapping and, until `close_fd`, its descriptor."""

    def __init__(self, fd: int, size: int) -> None:
        """Map `size` bytes of `fd`, which becomes the block's to close.

        Raises:
            ValueError: the memory behind `fd` is smaller than `size`.
        """
        self.fd = fd
        try:
            found = os.fstat(fd).st_size
            if found < size:
                raise ValueError(f"a block of {size} bytes was announced, but it has {found}")
            self._mapping = mmap.mmap(fd, size)
        except BaseException:
            self.close_fd()
            raise

    @classmethod
    def create(cls, size: int, poison_from: int = 0) -> Block:
        """Return new memory of `size` bytes: zeros up to `poison_from`, poison behind."""
        block = cls(open_memory("stepherd-block", size), size)
        chunk = bytes([POISON]) * min(size - poison_from, 2**20)
        for offset in range(poison_from, size, 2**20):
            block._mapping[offset : min(offset + 2**20, size)] = chunk[: min(2**20, size - offset)]
        return block

    @property
    def buffer(self) -> memoryview:
        """The memory, writable. Views of it must be released before `close`."""
        return memoryview(self._mapping)

    def close_fd(self) -> None:
        """Close the descriptor, once the other side has its own; the mapping stays. Twice is fine."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Unmap, or leave that to the last view somebody still holds. Twice is fine."""
        self.close_fd()
        try:
            self._mapping.close()
        except BufferError:
            return  # a batch in somebody's hands; the memory goes with it


def open_memory(name: str, size: int) -> int:
    """Return a descriptor of `size` bytes of anonymous memory, which nobody can shrink under a mapping."""
    if sys.platform == "linux":
        import fcntl  # does not exist on Windows

        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except BaseException:
            os.close(fd)
            raise
        return fd
    with tempfile.TemporaryFile(prefix=name) as file:  # unlinked at once: nothing to leak either
        file.truncate(size)
        return os.dup(file.fileno())


def memory_of(data: bytes) -> int:
    """Return a descriptor of anonymous memory that holds `data`, which must not be empty."""
    fd = open_memory("stepherd-note", len(data))
    try:
        with mmap.mmap(fd, len(data)) as mapping:
            mapping[:] = data
    except BaseException:
        os.close(fd)
        raise
    return fd


def take_memory(fd: int, size: int) -> bytes:
    """Return the first `size` bytes behind `fd` and close it."""
    try:
        with mmap.mmap(fd, size) as mapping:
            return mapping[:]
    finally:
        os.close(fd)
