"""I-4: committed metadata is identical on all nodes, in their logs, snapshots and images."""

from __future__ import annotations

from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from strandline.raft.disk.batches import read_batches
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_metadata import CommittedMetadata, comparable, image_digest, maps_of
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.volume import FileNode

# Comparing whole images is expensive; now and then suffices, since a wrong image stays wrong.
_COMPARE_EVERY = 50


class MetadataAgreesEverywhere(Checker):
    def __init__(self, cluster: Cluster, metadata: CommittedMetadata) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._commits: dict[int, int] = {}
        self._snapshots: dict[int, set[tuple[int, SnapshotId]]] = {}
        self._names: dict[int, tuple[int, int]] = {}

    def node_started(self, member: Member) -> None:
        self._commits[member.id] = 0
        self._check_snapshots(member)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.high_watermark > self._metadata.end or now.committed > self._metadata.end:
            self._raise_too_far(member, max(now.high_watermark, now.committed))
        if now.role != "Leader" and now.replayed > max(now.high_watermark, now.committed):
            self._check_replayed(member, before, now)
        if now.high_watermark > before.high_watermark:
            self._check_log(member, before.high_watermark, now.high_watermark)
        if now.committed != before.committed:
            self._check_image(member, before, now)
        self._check_snapshots(member)

    def finish(self) -> None:
        for member in self._cluster.running():
            assert member.node is not None
            self._check_log(member, 0, self._metadata.end)
            self._compare_image(member, member.node.image.committed.moment)

    def _raise_too_far(self, member: Member, offset: int) -> None:
        why = f"{member.name} considers offsets below {offset} committed"
        raise Violation("I-4", f"{why}; leaders have committed up to {self._metadata.end} only")

    def _check_replayed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """Only the active controller replays uncommitted records. A former one must revert them before it replays
        more."""
        # The records of a snapshot are replayed at offset 0.
        if now.replayed > 1 and (now.replayed > before.replayed or now.committed > before.committed):
            why = f"{member.name}, a {now.role.lower()}, has replayed up to {now.replayed}"
            raise Violation("I-4", f"{why}, and only {now.high_watermark} is committed")

    def _check_log(self, member: Member, since: int, below: int) -> None:
        different = self._metadata.first_difference(member.files.batches(since), below)
        if different is not None:
            why = f"the log of {member.name} has at {different.base_offset} a batch of epoch {different.epoch}"
            raise Violation("I-4", f"{why} that differs from the committed batch")

    def _check_image(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.committed < before.committed:
            raise Violation(
                "I-4", f"the committed offset of {member.name} decreases from {before.committed} to {now.committed}"
            )
        count = self._commits[member.id] = self._commits[member.id] + 1
        if count % _COMPARE_EVERY == 1:
            self._compare_image(member, now.committed)

    def _compare_image(self, member: Member, moment: int) -> None:
        assert member.node is not None
        expected = self._metadata.digest_at(moment)
        if expected is not None and image_digest(member.node.image, moment) != expected:
            why = self._difference(member.node.image, moment)
            raise Violation("I-4", f"the image of {member.name} at {moment} differs from the committed metadata{why}")

    def _check_snapshots(self, member: Member) -> None:
        volume = member.machine.volume
        names = (id(volume), volume.name_changes)
        if self._names.get(member.id) == names:
            return
        self._names[member.id] = names
        known = self._snapshots.setdefault(member.id, set())
        for snapshot_id, file in member.files.snapshots().items():
            if (file.number, snapshot_id) not in known:
                known.add((file.number, snapshot_id))
                self._check_snapshot(member, snapshot_id, file)

    def _check_snapshot(self, member: Member, snapshot_id: SnapshotId, file: FileNode) -> None:
        where = f"the snapshot {snapshot_id.file_name} of {member.name}"
        expected = self._metadata.digest_at(snapshot_id.end_offset)
        if expected is None:
            raise Violation("I-4", f"{where} ends at an offset where no committed batch ends")
        epoch = self._metadata.epoch_before(snapshot_id.end_offset)
        if epoch not in (None, snapshot_id.epoch):
            raise Violation("I-4", f"{where} ends with a record of epoch {epoch}")
        self._check_quorum(where, snapshot_id, file)
        image = Image()
        try:
            for batch in read_batches(file.read(0, file.size), where):
                for record in () if batch.is_control else batch.records:
                    image.replay(record, 0)
        except NodeFault as error:
            raise Violation("I-4", f"{where} cannot be read: {error}") from error
        image.commit(1)
        if image_digest(image, 1) != expected:
            why = self._difference(image, snapshot_id.end_offset)
            raise Violation("I-4", f"{where} differs from the committed metadata{why}")

    def _check_quorum(self, where: str, snapshot_id: SnapshotId, file: FileNode) -> None:
        """The snapshot has the voters and kraft.version of the log at its end offset. (Voters without a record are
        static, or come from the snapshot that the directory was formatted with.)"""
        voters, version = None, 0
        for batch in read_batches(file.read(0, file.size), where):
            for record in batch.records if batch.is_control else ():
                if isinstance(record, VotersRecord):
                    voters = VoterSet.of_record(record)
                elif isinstance(record, KRaftVersionRecord):
                    version = record.kraft_version
        expected = self._metadata.quorum_before(snapshot_id.end_offset)
        if expected[0] is not None and (voters, version) != expected:
            raise Violation("I-4", f"{where} has {voters}, kraft.version {version}; committed is {expected}")

    def _difference(self, image: Image, offset: int) -> str:
        """Described only if the committed metadata is still at this offset."""
        return difference(image, self._metadata.image) if offset == self._metadata.end else ""


def difference(image: Image, other: Image) -> str:
    found, committed = _entries(image), _entries(other)
    return f"; only here: {sorted(found - committed)[:3]}; only committed: {sorted(committed - found)[:3]}"


def _entries(image: Image) -> set[str]:
    return {
        f"{number}: {key} is {comparable(value)}"
        for number, map_ in enumerate(maps_of(image))
        for key, value in map_.items(image.committed.moment)
    }
