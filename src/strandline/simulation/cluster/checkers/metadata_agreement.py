"""I-4: committed metadata is identical on all nodes, in their logs, in their snapshots and in their images."""

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

# Comparing a whole image costs as much as the image is large: now and then is often enough, for what is wrong stays so.
_COMPARE_EVERY = 50


class MetadataAgreesEverywhere(Checker):
    def __init__(self, cluster: Cluster, ledger: CommittedMetadata) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._commits: dict[int, int] = {}
        self._snapshots: dict[int, set[tuple[int, SnapshotId]]] = {}
        self._names: dict[int, tuple[int, int]] = {}

    def booted(self, member: Member) -> None:
        self._commits[member.id] = 0
        self._check_snapshots(member)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.high_watermark > self._ledger.end or now.committed > self._ledger.end:
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
            self._check_log(member, 0, self._ledger.end)
            self._compare_image(member, member.node.image.committed.moment)

    def _raise_too_far(self, member: Member, offset: int) -> None:
        why = f"{member.name} takes for committed what lies below {offset}"
        raise Violation("I-4", f"{why}; leaders have committed up to {self._ledger.end} only")

    def _check_replayed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """The active controller is ahead of the quorum. When it is that no more, it goes back before it goes on."""
        # A snapshot is replayed as if everything in it stood at offset 0.
        if now.replayed > 1 and (now.replayed > before.replayed or now.committed > before.committed):
            why = f"{member.name}, a {now.role.lower()}, has replayed up to {now.replayed}"
            raise Violation("I-4", f"{why}, and only {now.high_watermark} is committed")

    def _check_log(self, member: Member, since: int, below: int) -> None:
        different = self._ledger.first_difference(member.files.batches(since), below)
        if different is not None:
            why = f"the log of {member.name} holds at {different.base_offset} a batch of epoch {different.epoch}"
            raise Violation("I-4", f"{why} that is not the one that was committed there")

    def _check_image(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.committed < before.committed:
            raise Violation("I-4", f"{member.name} goes back in metadata from {before.committed} to {now.committed}")
        count = self._commits[member.id] = self._commits[member.id] + 1
        if count % _COMPARE_EVERY == 1:
            self._compare_image(member, now.committed)

    def _compare_image(self, member: Member, moment: int) -> None:
        assert member.node is not None
        expected = self._ledger.digest_at(moment)
        if expected is not None and image_digest(member.node.image, moment) != expected:
            why = self._difference(member.node.image, moment)
            raise Violation("I-4", f"the image of {member.name} at {moment} is not what was committed{why}")

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
        expected = self._ledger.digest_at(snapshot_id.end_offset)
        if expected is None:
            raise Violation("I-4", f"{where} ends where nothing was committed")
        epoch = self._ledger.epoch_before(snapshot_id.end_offset)
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
            raise Violation("I-4", f"{where} does not hold what was committed{why}")

    def _check_quorum(self, where: str, snapshot_id: SnapshotId, file: FileNode) -> None:
        """The voters and kraft.version that the log has at the end of the snapshot. (Voters that no record names are
        configured, or stand in the snapshot that a directory is formatted with.)"""
        voters, version = None, 0
        for batch in read_batches(file.read(0, file.size), where):
            for record in batch.records if batch.is_control else ():
                if isinstance(record, VotersRecord):
                    voters = VoterSet.of_record(record)
                elif isinstance(record, KRaftVersionRecord):
                    version = record.kraft_version
        expected = self._ledger.quorum_before(snapshot_id.end_offset)
        if expected[0] is not None and (voters, version) != expected:
            raise Violation("I-4", f"{where} tells of {voters}, kraft.version {version}, and committed is {expected}")

    def _difference(self, image: Image, offset: int) -> str:
        """In words, where the ledger still stands at this offset."""
        return difference(image, self._ledger.image) if offset == self._ledger.end else ""


def difference(image: Image, other: Image) -> str:
    """For the reader of a story."""
    mine, theirs = _entries(image), _entries(other)
    return f"; only here: {sorted(mine - theirs)[:3]}; only there: {sorted(theirs - mine)[:3]}"


def _entries(image: Image) -> set[str]:
    return {
        f"{number}: {key} is {comparable(value)}"
        for number, map_ in enumerate(maps_of(image))
        for key, value in map_.items(image.committed.moment)
    }
