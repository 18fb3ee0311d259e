"""I-2: epochs never fall, a vote never changes within an epoch, and what is said is on the disk before it is said."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteRequestPartitionData,
    VoteResponse,
)
from strandline.protocol.types import Message
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.metadata_files import Voted
from strandline.simulation.cluster.node_state import NodeState, replica_of
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

_NOBODY = -1


class VotesAreDurable(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By what a vote belongs to: a node with a new disk is a new voter, and has no memory to contradict.
        self._epochs: dict[str, int] = {}
        self._votes: dict[tuple[str, int], int] = {}
        self._would_vote: dict[tuple[int, int], set[int]] = {}
        """(Who asked beforehand, its epoch then) → who granted."""
        self._ends: WeakKeyDictionary[ObservedRequest, tuple[int, int]] = WeakKeyDictionary()
        """Of the log of whoever is asked for a vote, when it was."""
        self._found: dict[int, int] = {}
        """Epochs that nodes found on their disks when they started: one may go on with an election that it began."""

    def booted(self, member: Member) -> None:
        found = member.files.quorum_state()
        if found is not None:
            self._found[member.id] = found.epoch
            self._remember(member, found, "finds on its disk")

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.epoch < before.epoch:
            raise Violation("I-2", f"{member.name} goes back from epoch {before.epoch} to {now.epoch}")
        if now.state is not before.state:
            self._check_memory(member)

    def _check_memory(self, member: Member) -> None:
        """A vote is in memory first: whatever the disk has of this epoch, the machine has too."""
        quorum = None if member.node is None else member.node.quorum
        replica = None if quorum is None else replica_of(quorum)
        found = member.files.quorum_state(cached=True)
        if replica is None or found is None or found.epoch != replica.epoch:
            return
        if found.voted_id not in (_NOBODY, replica.state.voted_id):
            why = f"the disk of {member.name} says that it has voted for node{found.voted_id} in epoch {found.epoch}"
            raise Violation("I-2", f"{why}, and its memory says {replica.state}")

    def asked(self, asked: ObservedRequest) -> None:
        request = asked.message
        if isinstance(request, VoteRequest):
            partition = request.topics[0].partitions[0]
            if not partition.pre_vote:
                self._said(asked.source, partition.replica_epoch, partition.replica_id, "asks for votes")
                self._stands(asked.source, partition.replica_epoch)
        elif isinstance(request, BeginQuorumEpochRequest):
            epoch = request.topics[0].partitions[0].leader_epoch
            self._said(asked.source, epoch, None, "says that it leads")

    def arrived(self, asked: ObservedRequest) -> None:
        member = self._cluster.named(asked.target)
        if isinstance(asked.message, VoteRequest) and member is not None:
            self._ends[asked] = member.files.end()

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        if isinstance(response, VoteResponse) and response.topics:
            given = response.topics[0].partitions[0]
            self._said(asked.target, given.leader_epoch, None, "answers")
            assert isinstance(asked.message, VoteRequest)
            wanted = asked.message.topics[0].partitions[0]
            if given.vote_granted:
                self._granted(asked, wanted)
        elif isinstance(response, (BeginQuorumEpochResponse, EndQuorumEpochResponse)) and response.topics:
            epoch = response.topics[0].partitions[0].leader_epoch
            self._said(asked.target, epoch, None, f"answers {ApiKey(asked.api).name}")

    def _granted(self, asked: ObservedRequest, wanted: VoteRequestPartitionData) -> None:
        machine = asked.target
        member = self._cluster.named(machine)
        if not wanted.pre_vote:
            self._said(machine, wanted.replica_epoch, wanted.replica_id, "grants its vote")
        elif member is not None:
            self._would_vote.setdefault((wanted.replica_id, wanted.replica_epoch), set()).add(member.id)
        # It decides when it is asked, and may get on while the answer waits to be sent; or is cut.
        mine = (0, 0) if member is None else min(member.files.end(), self._ends.pop(asked, (0, 0)))
        if (wanted.last_offset_epoch, wanted.last_offset) < mine:
            why = f"{machine} grants {'a pre-' if wanted.pre_vote else 'its '}vote to node{wanted.replica_id}"
            raise Violation("I-5", f"{why}, whose log ends at {wanted.last_offset}; its own ends at {mine[1]}")

    def _stands(self, machine: str, epoch: int) -> None:
        """Whoever was merely cut off must not unseat a leader whom the others follow (KIP-996)."""
        member = self._cluster.named(machine)
        if member is None or self._found.get(member.id, 0) >= epoch:
            return
        voters = member.files.last_voters()
        count = len(self._cluster.voters() if voters is None else voters.voters)
        willing = {member.id} | self._would_vote.get((member.id, epoch - 1), set())
        if len(willing) * 2 <= count:
            why = f"{machine} stands for election in epoch {epoch}, and of {count} voters only"
            raise Violation("liveness", f"{why} {sorted(willing)} had said that they would vote for it")

    def _said(self, machine: str, epoch: int, vote: int | None, what: str) -> None:
        member = self._cluster.named(machine)
        if member is None or member.id not in self._cluster.controller_ids:
            return
        durable = member.files.quorum_state() or Voted(0, _NOBODY, _NOBODY, "")
        if durable.epoch < epoch:
            raise Violation("I-2", f"{machine} {what} in epoch {epoch}, but its disk says epoch {durable.epoch}")
        if vote is None:
            return
        if durable.epoch == epoch and vote not in (durable.voted_id, durable.leader_id):
            raise Violation("I-2", f"{machine} {what} (node{vote}, epoch {epoch}), but its disk says {durable}")
        self._vote(member, epoch, vote)

    def _remember(self, member: Member, found: Voted, how: str) -> None:
        who = str(member.directory_id)
        before = self._epochs.get(who, 0)
        if found.epoch < before:
            raise Violation("I-2", f"{member.name} {how} epoch {found.epoch}, and was in epoch {before} already")
        self._epochs[who] = found.epoch
        if found.voted_id != _NOBODY:
            self._vote(member, found.epoch, found.voted_id)

    def _vote(self, member: Member, epoch: int, vote: int) -> None:
        self._epochs[str(member.directory_id)] = max(epoch, self._epochs.get(str(member.directory_id), 0))
        first = self._votes.setdefault((str(member.directory_id), epoch), vote)
        if first != vote:
            raise Violation("I-2", f"{member.name} votes for node{vote} in epoch {epoch}, after node{first}")
