"""What is committed, as an onlooker who sees every commit writes it down: batch by batch, and as an image of its own.

Fed by the high watermarks of quorum leaders. Checkers hold every node's log, snapshots and image against it, so that
"identical on all nodes" costs one comparison for each, not one for each pair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from strandline.metadata.image import Image
from strandline.model.timeline import ABSENT, TimelineMap
from strandline.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from strandline.raft.disk.batches import MetadataBatch, read_batches
from strandline.raft.machine.voters import VoterSet
from strandline.simulation.cluster.log_files import Batch
from strandline.simulation.cluster.metadata_files import MetadataFiles
from strandline.simulation.volume import FileNode

_MASK = (1 << 64) - 1


class CommittedMetadata:
    def __init__(self) -> None:
        self.end = 0
        """The first offset that nobody has committed yet."""
        self.image = Image()
        self.voters: VoterSet | None = None
        """Of the last committed VotersRecord."""
        self._batches: dict[int, Batch] = {}
        self._last: Batch | None = None
        self._held: dict[int, tuple[list[tuple[FileNode, int]], int]] = {}
        """By whose files: the segments looked at, as they were, and how far they were found to agree."""
        self._digest = 0
        self._digests: dict[int, int] = {0: 0}
        self._epochs: dict[int, int] = {}
        """Of the batch that ends at an offset."""
        self._quorums: list[tuple[int, VoterSet | None, int]] = [(0, None, 0)]
        """Where the voters or kraft.version changed, and what they are from there on."""
        self._on_batch: list[Callable[[MetadataBatch], None]] = []

    def tell(self, on_batch: Callable[[MetadataBatch], None]) -> None:
        """Each committed batch, after the ledger's image has replayed it."""
        self._on_batch.append(on_batch)

    def extend(self, files: MetadataFiles, high_watermark: int) -> None:
        """From the log of the leader that has just committed up to here."""
        for batch in files.batches(since=self.end):
            if self.end <= batch.base_offset and batch.next_offset <= high_watermark:
                self._add(batch, files.content(batch))

    def _add(self, batch: Batch, content: bytes) -> None:
        self._batches[batch.base_offset] = self._last = batch
        self.end = batch.next_offset
        (read,) = read_batches(content, "the ledger")
        self._epochs[batch.next_offset] = batch.epoch
        if read.is_control:
            self._note_quorum(read)
            self.image.skip_to(read.next_offset)
        else:
            self.image.replay_batch(read.base_offset, read.records)
        self._commit(read.next_offset)
        for tell in self._on_batch:
            tell(read)

    def _note_quorum(self, batch: MetadataBatch) -> None:
        _, _, version = self._quorums[-1]
        for record in batch.records:
            if isinstance(record, VotersRecord):
                self.voters = VoterSet.of_record(record)
            elif isinstance(record, KRaftVersionRecord):
                version = record.kraft_version
        self._quorums.append((batch.next_offset, self.voters, version))

    def _commit(self, offset: int) -> None:
        before: dict[tuple[int, Any], Any] = {}
        numbers = {id(map_): number for number, map_ in enumerate(maps_of(self.image))}
        touched = [entry for entry in self.image.commit(offset) if id(entry.map) in numbers]
        moment = self.image.committed.moment
        for entry in touched:
            number = numbers[id(entry.map)]
            if (number, entry.key) not in before:
                before[number, entry.key] = entry.old
                after = entry.map.at(entry.key, moment)
                self._digest += _weight(number, entry.key, after) - _weight(number, entry.key, entry.old)
        self._digest &= _MASK
        self._digests[offset] = self._digest

    def last_batch(self) -> Batch | None:
        return self._last

    def first_difference(self, batches: Iterable[Batch], below: int) -> Batch | None:
        """The first of these batches that is not what was committed at its place, looking at offsets below `below`."""
        for batch in batches:
            if batch.base_offset >= below:
                return None
            known = self._batches.get(batch.base_offset)
            if known is None or known.identity != batch.identity:
                return batch
        return None

    def held_durably(self, files: MetadataFiles) -> int:
        """How far the certain part of a node's directory agrees with what is committed: its first offset missing.

        What was certain stays so while nothing is rewritten and no segment goes, so it is not looked at again.
        """
        segments = files.certain_segments()
        marks = [(segment.file, segment.file.rewrites) for segment in segments]
        known, position = self._held.get(id(files), ([], 0))
        if marks[: len(known)] != known:
            known, position = [], 0
        snapshot = files.certain_snapshot()
        position = max(position, 0 if snapshot is None else snapshot.end_offset)
        for segment in segments[max(0, len(known) - 1) :]:
            for batch in segment.certain():
                if batch.base_offset <= position < batch.next_offset:
                    mine = self._batches.get(batch.base_offset)
                    if mine is not None and mine.identity != batch.identity:
                        return position
                    position = batch.next_offset
        self._held[id(files)] = (marks, min(position, self.end))
        return position

    def epoch_before(self, offset: int) -> int | None:
        """Of the last record below this offset; None where no batch ends."""
        return self._epochs.get(offset)

    def quorum_before(self, offset: int) -> tuple[VoterSet | None, int]:
        """Voters and kraft.version, as records below this offset say; None when none names voters."""
        index = bisect_right(self._quorums, offset, key=lambda entry: entry[0])
        return self._quorums[index - 1][1:]

    def digest_at(self, offset: int) -> int | None:
        """What `image_digest` gives for an image that stands here; None where no batch ends."""
        return self._digests.get(offset)


def image_digest(image: Image, moment: int) -> int:
    """The same for images that hold the same; says nothing outside this process."""
    total = 0
    for number, map_ in enumerate(maps_of(image)):
        for key, value in map_.items(moment):
            total += _weight(number, key, value)
    return total & _MASK


def maps_of(image: Image) -> Iterator[TimelineMap[Any, Any]]:
    """Those whose content is metadata; look-alikes are an index that follows from the names."""
    parts = (image.cluster, image.topics, image.configs, image.security)
    return (map_ for map_ in chain.from_iterable(vars(part).values() for part in parts) if _counts(image, map_))


def _counts(image: Image, map_: TimelineMap[Any, Any]) -> bool:
    return map_ is not image.topics.look_alikes


def _weight(number: int, key: Any, value: Any) -> int:
    if value is ABSENT:
        return 0
    try:
        return hash((number, key, comparable(value)))
    except TypeError:
        return hash((number, key, repr(value)))


def comparable(value: Any) -> Any:
    """Settings are the same in whatever order they were made."""
    return tuple(sorted(value.items())) if isinstance(value, dict) else value
