"""Requests of other nodes to this replica, and its responses, also those that carry bytes of the log or of a snapshot.

A token of the machine is a future here. The machine names the batches for a Fetch and the chunk of a snapshot file for
a FetchSnapshot; both are sent as file slices, read as the socket drains. A slow reader may therefore receive a slice of
a log that was truncated meanwhile, after this replica lost its leadership. It notices: every batch has the epoch of its
leader and a checksum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from strandline.log.cold_reads import ColdRead
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteResponse,
)
from strandline.protocol.types import Message
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.effects import ReplyWithRecords, ReplyWithSnapshot
from strandline.raft.machine.replica import QuorumRequest
from strandline.runtime.file_slice import FileSlice
from strandline.runtime.offload import Offload

# The version from which on a response names the leader's endpoint (for Fetch, Kafka fills it in later than it exists).
_ENDPOINTS_SINCE: Final[dict[type[Message], int]] = {
    VoteResponse: 1,
    BeginQuorumEpochResponse: 1,
    EndQuorumEpochResponse: 1,
    FetchSnapshotResponse: 1,
    FetchResponse: 17,
}
# A fetch whose sender has failed is dropped when it times out: without a limit it would stay parked forever.
_MAX_WAIT_MS: Final = 10_000

Token = asyncio.Future[Message]


def checked(request: Message) -> QuorumRequest:
    """Rejects what is no input of the machine; limits how long a fetch may be parked."""
    if not isinstance(request, QuorumRequest):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} is no request of the metadata quorum")
    if isinstance(request, FetchRequest):
        request.max_wait_ms = min(request.max_wait_ms, _MAX_WAIT_MS)
    return request


def may_write(request: Message) -> bool:
    """Whether a leader may append control records because of this request."""
    return isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest)


def downgraded(response: Message, version: int) -> Message:
    """A response of the machine, which builds the newest version, in the version of the request."""
    since = _ENDPOINTS_SINCE.get(type(response))
    if since is not None and version < since:
        response.node_endpoints = []  # type: ignore[attr-defined]
    return response


class PendingReplies:
    def __init__(self) -> None:
        self._pending: dict[Token, None] = {}
        self._is_closed = False

    async def wait(self, submit: Callable[[Token], None]) -> Message:
        """The response to the input that `submit` queues with this token."""
        if self._is_closed:
            raise _not_running()
        token: Token = asyncio.get_running_loop().create_future()
        self._pending[token] = None
        submit(token)
        try:
            return await token
        finally:
            self._pending.pop(token, None)

    def close(self) -> None:
        """Fails all pending requests: there will be no more responses."""
        self._is_closed = True
        for token in self._pending:
            if not token.done():
                token.set_exception(_not_running())
                token.exception()  # Its caller may have been cancelled: no warning about an exception never retrieved.


def _not_running() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node has left the metadata quorum")


def reply_to(token: object, response: Message) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():  # the caller may have been cancelled
        token.set_result(response)


async def reply_with_records(reply: ReplyWithRecords, storage: MetadataStorage, offload: Offload) -> None:
    """Responds without records if the log was truncated while they were being read: the follower fetches again."""
    log = storage.log
    generation = log.generation
    while isinstance(found := log.read(reply.offset, max_bytes=reply.max_bytes), ColdRead):
        await offload.run(found.load)
        if log.generation != generation or reply.offset < log.log_start_offset:
            break
    else:
        reply.response.responses[0].partitions[0].records = found.slice
    reply_to(reply.token, reply.response)


def reply_with_snapshot(reply: ReplyWithSnapshot, storage: MetadataStorage) -> None:
    partition = reply.response.topics[0].partitions[0]
    try:
        file = storage.snapshot_file(reply.snapshot_id)
        size = max(0, min(reply.max_bytes, file.size() - reply.position))
        partition.unaligned_records = FileSlice(file, reply.position, size)
    except FileNotFoundError:
        partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
    reply_to(reply.token, reply.response)
