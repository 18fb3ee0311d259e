"""Whoever waits for a reply of the machine, and the replies that carry bytes.

A token of the machine is a future here. Batches of the log for a Fetch, and a piece of a snapshot's file for a
FetchSnapshot, are named by the machine and sent as file slices, read as the socket drains. A slice may be overtaken:
this replica loses the lead and its log is cut while a slow reader still waits. The reader notices, for every batch
carries the epoch of its leader and a checksum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.log.cold_reads import ColdRead
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.effects import ReplyWithRecords, ReplyWithSnapshot
from strandline.runtime.file_slice import FileSlice
from strandline.runtime.offload import Offload

Token = asyncio.Future[Message]


class PendingReplies:
    def __init__(self) -> None:
        self._waiting: dict[Token, None] = {}
        self._has_ended = False

    async def ask(self, hand_in: Callable[[Token], None]) -> Message:
        """The reply to what is handed in with a token."""
        if self._has_ended:
            raise _gone()
        token: Token = asyncio.get_running_loop().create_future()
        self._waiting[token] = None
        hand_in(token)
        try:
            return await token
        finally:
            self._waiting.pop(token, None)

    def end(self) -> None:
        """There will be no more replies."""
        self._has_ended = True
        for token in self._waiting:
            if not token.done():
                token.set_exception(_gone())
                token.exception()  # its caller may be gone; that is no news worth a warning


def _gone() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node has left the metadata quorum")


def reply_to(token: object, response: Message) -> None:
    """Whoever asked may be gone."""
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_result(response)


async def reply_with_records(reply: ReplyWithRecords, storage: MetadataStorage, offload: Offload) -> None:
    """Without any when the log was cut while they were being looked for: then it will be asked again."""
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
