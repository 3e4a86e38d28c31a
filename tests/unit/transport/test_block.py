"""A block is memory without a name: sealed, poisoned, shared, and freed with its last mapping."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from faults.processes import open_descriptors
from stepherd.transport.block import POISON, Block, memory_of, open_memory, take_memory

if sys.platform == "win32":
    pytest.skip("there are no blocks on Windows yet", allow_module_level=True)

MIB = 2**20


@pytest.mark.parametrize("size", [1, 64, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 17])
@pytest.mark.parametrize("poison_from", [0, 1, 64])
def test_a_new_block_is_zero_up_to_where_the_poison_begins(size: int, poison_from: int) -> None:
    with contextlib.closing(Block.create(size, poison_from)) as block:
        memory = np.frombuffer(bytes(block.buffer), np.uint8)

    assert len(memory) == size
    assert not memory[:poison_from].any()
    assert (memory[poison_from:] == POISON).all()


@pytest.mark.parametrize(("dtype", "seen"), [("float32", np.nan), ("float64", np.nan), ("uint8", 255), ("int64", -1)])
def test_poison_is_seen_at_once_in_every_kind_of_number(dtype: str, seen: float) -> None:
    with contextlib.closing(Block.create(64)) as block:
        values = np.frombuffer(block.buffer, dtype).copy()

    np.testing.assert_array_equal(values, np.full_like(values, seen))


def test_what_one_side_writes_the_other_reads() -> None:
    with contextlib.closing(Block.create(4096)) as mine, contextlib.closing(Block(os.dup(mine.fd), 4096)) as theirs:
        theirs.buffer[100:105] = b"hello"

        assert bytes(mine.buffer[100:105]) == b"hello"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux seals memory")
def test_nobody_can_resize_the_memory_under_a_mapping() -> None:
    with contextlib.closing(Block.create(8192)) as block:
        for size in (0, 4096, 16384):
            with pytest.raises(PermissionError):
                os.ftruncate(block.fd, size)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is on Linux")
def test_a_block_has_no_name_in_any_folder() -> None:
    with contextlib.closing(Block.create(4096)) as block:
        target = str(Path(f"/proc/self/fd/{block.fd}").readlink())

    assert target.startswith("/memfd:")


def test_a_block_smaller_than_announced_is_refused_and_its_descriptor_closed() -> None:
    before = open_descriptors()
    fd = open_memory("test", 4096)

    with pytest.raises(ValueError, match="8192 bytes was announced, but it has 4096"):
        Block(fd, 8192)

    assert open_descriptors() == before


def test_a_descriptor_that_is_none_is_an_error() -> None:
    with pytest.raises(OSError, match="descriptor"):
        Block(-1, 64)


def test_the_mapping_outlives_its_descriptor() -> None:
    with contextlib.closing(Block.create(4096)) as block:
        block.close_fd()
        block.close_fd()

        block.buffer[:5] = b"hello"

        assert block.fd == -1
        assert bytes(block.buffer[:5]) == b"hello"


def test_a_view_outlives_the_close() -> None:
    block = Block.create(4096)
    block.buffer[:5] = b"hello"
    view = np.frombuffer(block.buffer, np.uint8)

    block.close()
    block.close()

    assert bytes(view[:5]) == b"hello"


def test_a_closed_block_is_unmapped() -> None:
    block = Block.create(4096)
    mapping = block._mapping

    block.close()

    assert mapping.closed
    with pytest.raises(ValueError, match="closed"):
        _ = block.buffer


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed on Linux")
def test_a_thousand_blocks_leave_no_descriptor_and_no_mapping() -> None:
    descriptors, mappings = open_descriptors(), n_block_mappings()

    for _ in range(1000):
        Block.create(4096).close()

    assert open_descriptors() == descriptors
    assert n_block_mappings() == mappings


@pytest.mark.parametrize("data", [b"x", b"hello", os.urandom(mmap.PAGESIZE), os.urandom(3 * MIB + 5)])
def test_a_note_in_memory_is_read_back_and_its_descriptor_closed(data: bytes) -> None:
    before = open_descriptors()

    read = take_memory(memory_of(data), len(data))

    assert read == data
    assert open_descriptors() == before


def test_a_note_shorter_than_announced_is_an_error_and_its_descriptor_closed() -> None:
    before = open_descriptors()

    with pytest.raises(ValueError, match="greater"):
        take_memory(memory_of(b"hello"), 100)

    assert open_descriptors() == before


def n_block_mappings() -> int:
    """Return how many mappings of blocks this process has."""
    with Path("/proc/self/maps").open() as maps:
        return sum("stepherd-block" in line for line in maps)
