"""Giving up the end of the log, or all of it: what a replica does whose log went another way, or fell too far behind.

Called by the driver while nothing else happens to the machine. Files that are of no more use are handed back, to be
removed in good time.
"""

from __future__ import annotations

from strandline.log.segment import Segment
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import SnapshotId
from strandline.raft.shell.flusher import Flusher
from strandline.raft.shell.replay import Replay
from strandline.raft.shell.stored_log import StoredLog
from strandline.runtime.offload import Offload


async def truncate(
    log: StoredLog, storage: MetadataStorage, flusher: Flusher, offload: Offload, offset: int
) -> list[Segment]:
    """Everything from `offset` on; it is above the high watermark."""
    # Whatever is written down about the part that stays must be true of the disk: it is synced first.
    await flusher.flush()
    cut = storage.log.begin_truncation(offset)
    await offload.run(cut.run)
    segments = cut.apply()
    log.on_truncated()
    return segments


async def restart_from_snapshot(
    log: StoredLog, storage: MetadataStorage, replay: Replay, offload: Offload, snapshot_id: SnapshotId, wall_ms: int
) -> tuple[list[SnapshotId], list[Segment]]:
    """Everything, for a snapshot that has come whole. DamagedSnapshot when it has not, UnwrittenSnapshot when there is
    no room for it: then nothing was given up.

    The order matters if the power goes: 1. the snapshot has its name, 2. the log goes. In between, opening sees that
    the log ends before the snapshot, or contradicts it, and goes on from here.
    """
    snapshot = await offload.run(storage.finish_received, snapshot_id)
    replay.pause()
    restart = storage.log.begin_full_truncation(snapshot_id.end_offset)
    await offload.run(restart.run, wall_ms)
    surplus = storage.restart_from_snapshot(snapshot_id, restart)
    log.on_snapshot(snapshot_id, snapshot)
    replay.load(snapshot_id, snapshot)
    return surplus
