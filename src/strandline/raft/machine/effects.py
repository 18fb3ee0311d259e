"""What the machine wants done. Each input of `Replica` returns a list of these; the driver performs them in order.

The order is a promise: what follows a `Persist`, a `Truncate` or a `FinishSnapshot` is performed only after that one is
finished, and the next input is handed in only when the whole list has been performed. (The syncing for a `Flush` and
the exchange begun by a `Send` go on in the background and come back as inputs of their own.)
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
    """Write quorum-state and sync it before any later effect: what follows may depend on this replica's memory."""

    state: QuorumState


class Send(msgspec.Struct, frozen=True, eq=False):
    """Send a request, in its newest version, and hand the outcome to `Replica.on_response` with this very object.

    A Send is known by its identity, not by its content: an outcome that nobody waits for any more is passed over.
    """

    to: int
    """A node id, or -1 for a bootstrap server, whose id nobody has told us."""
    endpoint: Endpoint
    request: Message


class Reply(msgspec.Struct, frozen=True):
    """Answer the request that came with this token, now or after it was parked."""

    token: object
    response: Message


class ReplyWithRecords(msgspec.Struct, frozen=True):
    """Fill the only partition of the response with up to `max_bytes` of whole batches from `offset` on, and answer.

    At least one batch, however large; uncommitted ones included, also those that are only in the page cache.
    """

    token: object
    response: FetchResponse
    offset: int
    max_bytes: int


class ReplyWithSnapshot(msgspec.Struct, frozen=True):
    """Fill the only partition of the response with up to `max_bytes` of the snapshot's file from byte `position` on.

    Size and position are already in the response. A file that has gone meanwhile is answered with SNAPSHOT_NOT_FOUND.
    """

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


class Flush(msgspec.Struct, frozen=True):
    """Sync the log in the background, then say how far: `Replica.on_flushed`. Several may be done as one."""


class Truncate(msgspec.Struct, frozen=True):
    """Cut the log so that it ends at `offset`, before any later effect. It is never below what is committed."""

    offset: int


class Commit(msgspec.Struct, frozen=True):
    """The high watermark rose: everything below it is committed and may be replayed."""

    high_watermark: int


class Lead(msgspec.Struct, frozen=True):
    """This replica leads the epoch and knows everything that is committed: the controller may become active."""

    epoch: int


class StepDown(msgspec.Struct, frozen=True):
    """The leadership of this epoch has ended, also if it never came to `Lead`."""

    epoch: int


class SnapshotChunk(msgspec.Struct, frozen=True):
    """Write these bytes at `position` of the snapshot's `.part` file, to the page cache. Position 0 begins it anew."""

    snapshot_id: SnapshotId
    position: int
    data: Buffer


class FinishSnapshot(msgspec.Struct, frozen=True):
    """Sync, verify and name the snapshot, begin the log anew at its end, load it into the image, before any later
    effect. Then `Replica.on_snapshot_loaded`, or `on_snapshot_failed` when it was not a whole snapshot,
    or the disk had no room for it (likewise after a SnapshotChunk)."""

    snapshot_id: SnapshotId


class LeaderChanged(msgspec.Struct, frozen=True):
    """Who leads, in which epoch, or where, is different now: whoever looks for the controller may look again.

    That nobody leads in yet another epoch is not worth telling.
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
