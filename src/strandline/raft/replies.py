"""Replies that carry bytes: batches of the log for a Fetch, a piece of a snapshot's file for a FetchSnapshot.

The machine says where they are; the bytes are file slices, read as the socket drains. A slice may be overtaken: this
replica loses the lead and its log is cut while a slow reader still waits. The reader notices, for every batch carries
the epoch of its leader and a checksum.
"""

from __future__ import annotations

import asyncio

from strandline.log.warming import Cold
from strandline.model.errors import ErrorCode
from strandline.protocol.types import Message
from strandline.raft.effects import ReplyWithRecords, ReplyWithSnapshot
from strandline.raft.storage import MetadataStorage
from strandline.runtime.offload import Offload
from strandline.runtime.slices import FileSlice

Token = asyncio.Future[Message]


def reply_to(token: object, response: Message) -> None:
    """Whoever asked may be gone."""
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_result(response)


async def reply_with_records(reply: ReplyWithRecords, storage: MetadataStorage, offload: Offload) -> None:
    """Without any when the log was cut while they were being looked for: then it will be asked again."""
    log = storage.log
    generation = log.generation
    while isinstance(found := log.read(reply.offset, max_bytes=reply.max_bytes), Cold):
        await offload.run(found.warm)
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
