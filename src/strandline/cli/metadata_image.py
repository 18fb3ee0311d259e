"""Rebuilds the metadata image at an offset from the files of a node: the last snapshot before it, then the log.

For `cli/metadata`. The offset may be inside a batch, so that the effect of each record can be seen.
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
    """The image after the record at this offset; with None, after the last record known to be committed."""
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
    """Loads the snapshot; returns the offset from which to replay the log."""
    snapshots = files.snapshots()
    usable = [each for each in snapshots if end is None or each.end_offset <= end]
    segments = files.segments()
    if not usable and (not segments or segments[0] > 0):
        raise CommandFailed(
            f"{files.directory} holds no metadata"
            if not snapshots
            else f"that offset is not retained: the oldest snapshot in {files.directory} is at offset "
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
