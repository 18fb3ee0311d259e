"""What a leadership commits in one step of the loop."""

from __future__ import annotations

import asyncio

from strandline.protocol.messages.metadata_records import NoOpRecord
from strandline.raft.shell.appends import LeaderTerm


def _appended(*sizes: int) -> LeaderTerm:
    async def make() -> LeaderTerm:
        held = LeaderTerm(epoch=1, end_offset=10, high_watermark=10)
        for size in sizes:
            held.append([NoOpRecord()] * size, 0, 30)
        return held

    return asyncio.run(make())


def test_small_appends_are_committed_together() -> None:
    assert list(_appended(1, 2, 3).commit_steps(16)) == [16]


def test_large_appends_are_committed_one_after_the_other() -> None:
    assert list(_appended(1_500, 1_500, 1_500).commit_steps(4_510)) == [1_510, 3_010, 4_510]


def test_an_append_is_never_committed_in_part() -> None:
    assert list(_appended(9_000, 10).commit_steps(9_020)) == [9_010, 9_020]


def test_control_records_behind_the_appends_are_committed_with_them() -> None:
    assert list(_appended(5).commit_steps(17)) == [17]
