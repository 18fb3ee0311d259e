from __future__ import annotations

from random import Random

import pytest

from strandline.client.core.partitioner import Partitioner, murmur2, partition_for_key

# As Java's producer computes them.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_keys_hash_as_in_java(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFF_FFFF


def test_a_key_has_a_fixed_partition_with_or_without_a_leader() -> None:
    partitioner = Partitioner(Random(1), 100)
    assert {partitioner.partition("t", b"foobar", 10, 7, []) for _ in range(5)} == {partition_for_key(b"foobar", 7)}


def test_records_without_a_key_change_partition_when_a_batch_is_full() -> None:
    partitioner = Partitioner(Random(1), batch_bytes=100)
    chosen = [partitioner.partition("t", None, 50, 3, [0, 1, 2]) for _ in range(6)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert chosen[2] == chosen[3] != chosen[4]


def test_a_partition_without_a_leader_is_avoided() -> None:
    partitioner = Partitioner(Random(1), batch_bytes=1)
    assert {partitioner.partition("t", None, 10, 3, [2]) for _ in range(5)} == {2}
