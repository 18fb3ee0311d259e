"""The metadata image as it was at an offset, rebuilt from a node's files: the last snapshot before it, then the log.

For `cli/metadata`, which walks through it. Within a batch too: whoever looks wants to see what each record did.
"""

from __future__ import annotations

from strandline.cli.errors import CommandFailed
from strandline.cli.metadata_files import MetadataFiles
from strandline.cli.metadata_tree import QuorumFacts
from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.raft.disk.batches import MetadataBatch, read_batches
from strandline.raft.disk.snapshots import read_snapshot
from strandline.raft.machine.values import SnapshotId


def image_at(files: MetadataFiles, at: int | None) -> tuple[Image, QuorumFacts]:
    """Everything up to and including the record at this offset; without one, everything known to be committed."""
    image, quorum = Image(), QuorumFacts()
    end = files.committed() if at is None else at + 1
    try:
        start = _load_snapshot(files, image, quorum, end)
        for _, data in files.batches(start, end):
            for batch in read_batches(data, files.directory):
                _replay(image, quorum, batch, start, batch.next_offset if end is None else min(batch.next_offset, end))
    except NodeFault as fault:
        raise CommandFailed(str(fault)) from fault
    if at is not None and image.end_offset <= at:
        raise CommandFailed(f"offset {at} is not written yet: {files.directory} ends at offset {image.end_offset - 1}")
    return image, quorum


def _load_snapshot(files: MetadataFiles, image: Image, quorum: QuorumFacts, end: int | None) -> int:
    """The offset from which on the log is to be replayed."""
    snapshots = files.snapshots()
    usable = [each for each in snapshots if end is None or each.end_offset <= end]
    segments = files.segments()
    if not usable and (not segments or segments[0] > 0):
        raise CommandFailed(
            f"{files.directory} holds no metadata"
            if not snapshots
            else f"what was at that offset is not retained: the oldest snapshot in {files.directory} is of offset "
            f"{snapshots[0].end_offset - 1}"
        )
    base = usable[-1] if usable else SnapshotId(0, 0)
    if files.disk.exists(files.path_of(base)):
        snapshot = read_snapshot(files.disk, files.path_of(base))
        quorum.kraft_version, quorum.voters, quorum.epoch = snapshot.kraft_version, snapshot.voters, base.epoch
        if base.end_offset > 0:
            image.load(snapshot.records(), base.end_offset)
    return base.end_offset


def _replay(image: Image, quorum: QuorumFacts, batch: MetadataBatch, start: int, end: int) -> None:
    image.mark(batch.base_offset)
    for offset, record in enumerate(batch.records, batch.base_offset):
        if not start <= offset < end:
            continue
        if batch.is_control:
            quorum.on_record(record, batch.epoch)
        else:
            image.replay(record, offset)
    image.skip_to(end)
