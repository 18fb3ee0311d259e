"""Responses with batches of the log and chunks of a snapshot; pending requests when the quorum stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.protocol.messages.quorum import (
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)
from strandline.raft.disk.batches import read_batches
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.effects import ReplyWithRecords, ReplyWithSnapshot
from strandline.raft.machine.values import SnapshotId
from strandline.raft.shell.inbound_requests import PendingReplies, reply_to, reply_with_records, reply_with_snapshot
from strandline.runtime.file_slice import FileSlice
from unit.log.logs import truncate
from unit.raft.test_stored_log import OpenedLog, data, snapshot_at
from unit.server.memory_server import InlineOffload, run, settle


def fetched(made: OpenedLog, offset: int, max_bytes: int, offload: Any = None) -> FileSlice | None:
    async def scenario() -> Any:
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
        token = asyncio.get_running_loop().create_future()
        reply = ReplyWithRecords(token, response, offset, max_bytes)
        await reply_with_records(reply, made.storage, offload or InlineOffload())
        return (await token).responses[0].partitions[0].records

    found = run(scenario())
    assert found is None or isinstance(found, FileSlice)
    return found


def offsets(found: FileSlice | None) -> list[int]:
    assert found is not None
    return [batch.base_offset for batch in read_batches(found.read(), "here")]


def filled(count: int = 10) -> OpenedLog:
    made = OpenedLog()
    for offset in range(count):
        made.log.append_as_follower(data(offset, 1))
    return made


def cold() -> OpenedLog:
    """A log whose checksums have not been verified since the start."""
    made = filled()
    for segment in made.storage.log.segments:
        segment.verified, segment.trusted_from, segment.recent = (), segment.size, None
    return made


def test_a_fetch_response_has_whole_batches_up_to_the_limit_and_at_least_one() -> None:
    made = filled()
    assert offsets(fetched(made, 3, 1 << 20)) == [3, 4, 5, 6, 7, 8, 9]
    assert offsets(fetched(made, 3, 1)) == [3]
    assert offsets(fetched(made, 3, 3 * len(data(0, 1)) + 5)) == [3, 4, 5]


def test_a_cold_read_is_loaded_first() -> None:
    made = cold()
    offload = InlineOffload()
    assert offsets(fetched(made, 4, 1 << 20, offload))[0] == 4
    assert offload.runs >= 1


def test_a_log_that_is_truncated_during_a_cold_read_returns_no_records() -> None:
    made = cold()

    class TruncatingOffload(InlineOffload):
        async def run(self, work: Any, *arguments: object) -> Any:
            truncate(made.storage.log, 2)
            return await super().run(work, *arguments)

    assert fetched(made, 4, 1 << 20, TruncatingOffload()) is None


def chunk(storage: MetadataStorage, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Any:
    async def scenario() -> Any:
        partition = FetchSnapshotResponsePartitionSnapshot()
        response = FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(partitions=[partition])])
        token = asyncio.get_running_loop().create_future()
        reply_with_snapshot(ReplyWithSnapshot(token, response, snapshot_id, position, max_bytes), storage)
        return (await token).topics[0].partitions[0]

    return run(scenario())


def test_a_snapshot_is_sent_in_chunks_of_its_file() -> None:
    made, snapshot_id = OpenedLog(), SnapshotId(5, 1)
    snapshot_at(made, snapshot_id)
    whole = made.disk.read(made.storage.path_of(snapshot_id))
    got = b""
    while len(got) < len(whole):
        found = chunk(made.storage, snapshot_id, len(got), 50)
        assert 0 < len(found.unaligned_records) <= 50
        got += found.unaligned_records.read()
    assert got == whole


def test_a_removed_snapshot_is_not_found() -> None:
    assert chunk(OpenedLog().storage, SnapshotId(5, 1), 0, 50).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_pending_and_later_requests_fail_when_the_quorum_stops() -> None:
    async def scenario() -> None:
        replies, tokens = PendingReplies(), []
        waiting = asyncio.create_task(replies.wait(tokens.append))
        await settle()
        replies.close()
        for late in (waiting, replies.wait(tokens.append)):
            with pytest.raises(KafkaError) as rejection:
                await late
            assert rejection.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert len(tokens) == 1

    run(scenario())


def test_a_reply_to_a_cancelled_request_is_dropped() -> None:
    async def scenario() -> None:
        replies, tokens = PendingReplies(), []
        waiting = asyncio.create_task(replies.wait(tokens.append))
        await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        reply_to(tokens[0], FetchResponse())
        assert tokens[0].cancelled()

    run(scenario())
