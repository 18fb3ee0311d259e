"""The effects of the machine. Each input of `Replica` returns a list of these; the driver performs them in order.

Effects after a `Persist`, a `Truncate` or a `FinishSnapshot` are performed only when that one has finished, and the
next input is passed only when the whole list has been performed. (The sync for a `Flush` and the request of a `Send`
run in the background; their outcomes are inputs of their own.)
"""

from __future__ import annotations

import msgspec

from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.quorum import FetchSnapshotResponse
from strandline.protocol.types import Message
from strandline.raft.machine.values import QuorumState, SnapshotId
from strandline.runtime.disk import Buffer


class Persist(msgspec.Struct, frozen=True):
    """Write quorum-state and sync it before any later effect: later messages may depend on it."""

    state: QuorumState


class Send(msgspec.Struct, frozen=True, eq=False):
    """Send a request, in its newest version, and pass the outcome to `Replica.on_response` with this same object.

    Sends are compared by identity: the outcome of one that is no longer in flight is ignored.
    """

    to: int
    """A node id, or -1 for a bootstrap server, whose id is unknown."""
    endpoint: Endpoint
    request: Message


class Reply(msgspec.Struct, frozen=True):
    """Respond to the request that came with this token, at once or after it was parked."""

    token: object
    response: Message


class ReplyWithRecords(msgspec.Struct, frozen=True):
    """Respond with up to `max_bytes` of whole batches from `offset` on in the only partition.

    At least one batch, however large; uncommitted and unsynced batches included.
    """

    token: object
    response: FetchResponse
    offset: int
    max_bytes: int


class ReplyWithSnapshot(msgspec.Struct, frozen=True):
    """Respond with up to `max_bytes` of the snapshot's file from byte `position` on in the only partition.

    Size and position are already in the response. SNAPSHOT_NOT_FOUND if the file has been removed meanwhile.
    """

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


class Flush(msgspec.Struct, frozen=True):
    """Sync the log in the background, then call `Replica.on_flushed`. One sync may serve several of these."""


class Truncate(msgspec.Struct, frozen=True):
    """Truncate the log to end at `offset`, before any later effect; never below the high watermark."""

    offset: int


class Commit(msgspec.Struct, frozen=True):
    """The high watermark has advanced: everything below it is committed and may be replayed."""

    high_watermark: int


class Lead(msgspec.Struct, frozen=True):
    """Reports that this replica leads the epoch and has committed a record of it: the controller may become active."""

    epoch: int


class StepDown(msgspec.Struct, frozen=True):
    """The leadership of this epoch has ended, with or without a `Lead` before."""

    epoch: int


class SnapshotChunk(msgspec.Struct, frozen=True):
    """Write these bytes at `position` of the snapshot's `.part` file, to the page cache. Position 0 starts a new
    file."""

    snapshot_id: SnapshotId
    position: int
    data: Buffer


class FinishSnapshot(msgspec.Struct, frozen=True):
    """Sync, verify and rename the snapshot, truncate the log fully to start at its end, and load it into the image,
    before any later effect. Then call `Replica.on_snapshot_loaded`, or `on_snapshot_failed` when it is not a whole
    snapshot or the disk is full (as also after a SnapshotChunk)."""

    snapshot_id: SnapshotId


class LeaderChanged(msgspec.Struct, frozen=True):
    """The leader, its epoch or its endpoint has changed: the node may look for the active controller again.

    Not emitted when only the epoch changes while no leader is known.
    """


Effect = (
    Persist
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | Flush
    | Truncate
    | Commit
    | Lead
    | StepDown
    | SnapshotChunk
    | FinishSnapshot
    | LeaderChanged
)
