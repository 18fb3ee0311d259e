"""The committed metadata log, recorded outside the nodes: its batches, and an image replayed from them.

Extended with the high watermarks of quorum leaders. Checkers compare every node's log, snapshots and image with it, so
that "identical on all nodes" needs one comparison per node instead of one per pair.
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
        """The first offset that is not committed yet."""
        self.image = Image()
        self.voters: VoterSet | None = None
        """The voters of the last committed VotersRecord."""
        self._batches: dict[int, Batch] = {}
        self._last: Batch | None = None
        self._held: dict[int, tuple[list[tuple[FileNode, int]], int]] = {}
        """For each node's files: the segments compared so far, their rewrite counts, and the end of the agreement."""
        self._digest = 0
        self._digests: dict[int, int] = {0: 0}
        self._epochs: dict[int, int] = {}
        """Epoch of the batch that ends at an offset."""
        self._quorums: list[tuple[int, VoterSet | None, int]] = [(0, None, 0)]
        """(Offset from which they apply, voters, kraft.version)."""
        self._on_batch: list[Callable[[MetadataBatch], None]] = []

    def subscribe(self, on_batch: Callable[[MetadataBatch], None]) -> None:
        """Calls `on_batch` with each committed batch, after `image` has replayed it."""
        self._on_batch.append(on_batch)

    def notify(self, batch: MetadataBatch) -> None:
        for callback in self._on_batch:
            callback(batch)

    def extend(self, files: MetadataFiles, high_watermark: int) -> None:
        """Adds batches up to `high_watermark` from the log of the leader that has just committed them."""
        for batch in files.batches(since=self.end):
            if self.end <= batch.base_offset and batch.next_offset <= high_watermark:
                self._add(batch, files.content(batch))

    def _add(self, batch: Batch, content: bytes) -> None:
        self._batches[batch.base_offset] = self._last = batch
        self.end = batch.next_offset
        (read,) = read_batches(content, "the committed log")
        self._epochs[batch.next_offset] = batch.epoch
        if read.is_control:
            self._note_quorum(read)
            self.image.skip_to(read.next_offset)
        else:
            self.image.replay_batch(read.base_offset, read.records)
        self._commit(read.next_offset)
        self.notify(read)

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
        """The first of these batches below the offset `below` that differs from the committed batch at its offset."""
        for batch in batches:
            if batch.base_offset >= below:
                return None
            known = self._batches.get(batch.base_offset)
            if known is None or known.identity != batch.identity:
                return batch
        return None

    def durable_end(self, files: MetadataFiles) -> int:
        """The end offset up to which a node's durable log and snapshot agree with the committed log.

        Durable content stays durable unless a segment is rewritten or removed, so it is compared only once.
        """
        segments = files.durable_segments()
        marks = [(segment.file, segment.file.rewrites) for segment in segments]
        known, position = self._held.get(id(files), ([], 0))
        if marks[: len(known)] != known:
            known, position = [], 0
        snapshot = files.durable_snapshot()
        position = max(position, 0 if snapshot is None else snapshot.end_offset)
        for segment in segments[max(0, len(known) - 1) :]:
            for batch in segment.durable_batches():
                if batch.base_offset <= position < batch.next_offset:
                    mine = self._batches.get(batch.base_offset)
                    if mine is not None and mine.identity != batch.identity:
                        return position
                    position = batch.next_offset
        self._held[id(files)] = (marks, min(position, self.end))
        return position

    def epoch_before(self, offset: int) -> int | None:
        """Epoch of the last record below this offset; None where no batch ends."""
        return self._epochs.get(offset)

    def quorum_before(self, offset: int) -> tuple[VoterSet | None, int]:
        """Voters and kraft.version according to the records below this offset; no voters if no record names them."""
        index = bisect_right(self._quorums, offset, key=lambda entry: entry[0])
        return self._quorums[index - 1][1:]

    def digest_at(self, offset: int) -> int | None:
        """The `image_digest` of an image at this offset; None where no batch ends."""
        return self._digests.get(offset)


def image_digest(image: Image, moment: int) -> int:
    """Equal for images with equal content, within this process."""
    total = 0
    for number, map_ in enumerate(maps_of(image)):
        for key, value in map_.items(moment):
            total += _weight(number, key, value)
    return total & _MASK


def maps_of(image: Image) -> Iterator[TimelineMap[Any, Any]]:
    """The maps whose content is metadata. `look_alikes` is an index derived from the topic names."""
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
    """Configs compare equal regardless of the order in which they were set."""
    return tuple(sorted(value.items())) if isinstance(value, dict) else value
