from __future__ import annotations

import pytest

from strandline.coordinator.partitioning import partition_for


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [
        ("", 0),
        ("g", 103),
        ("my-group", -1906497762),
        ("größe", 98762257),
        ("console-consumer-12345", 158455506),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_the_partition_follows_javas_hash_code_of_the_key(key: str, hash_code: int) -> None:
    assert partition_for(key, 50) == (0 if hash_code == -(1 << 31) else abs(hash_code)) % 50
