"""I-2: quorum epochs never decrease, a vote never changes within an epoch, and both are durable before a message states
them. Also I-5: votes go only to candidates whose log is complete; and liveness: no candidate without pre-votes.
"""

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
from strandline.simulation.cluster.metadata_files import QuorumStateFile
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

_NO_VOTE = -1


class VotesAreDurable(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epochs: dict[str, int] = {}
        """Epochs by directory id: a node with a new disk is a new voter without former votes."""
        self._votes: dict[tuple[str, int], int] = {}
        """(Directory id, epoch) → node voted for."""
        self._pre_votes: dict[tuple[int, int], set[int]] = {}
        """(Prospective candidate, its epoch) → voters that granted it a pre-vote."""
        self._ends: WeakKeyDictionary[ObservedRequest, tuple[int, int]] = WeakKeyDictionary()
        """End of the receiver's log when the vote request arrived."""
        self._startup_epochs: dict[int, int] = {}
        """Epochs found on disk at startup: a node may continue the election that it had started in one."""

    def node_started(self, member: Member) -> None:
        found = member.files.quorum_state()
        if found is not None:
            self._startup_epochs[member.id] = found.epoch
            self._record(member, found)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.epoch < before.epoch:
            raise Violation("I-2", f"{member.name} decreases its epoch from {before.epoch} to {now.epoch}")
        if now.state is not before.state:
            self._check_memory(member)

    def _check_memory(self, member: Member) -> None:
        """The Raft state has every vote of this epoch that is on disk, since votes are in memory first."""
        quorum = None if member.node is None else member.node.quorum
        replica = None if quorum is None else quorum.replica
        found = member.files.quorum_state(cached=True)
        if replica is None or found is None or found.epoch != replica.epoch:
            return
        if found.voted_id not in (_NO_VOTE, replica.state.voted_id):
            why = f"{member.name} has stored a vote for node{found.voted_id} in epoch {found.epoch}"
            raise Violation("I-2", f"{why}, and has {replica.state} in memory")

    def request_written(self, observed: ObservedRequest) -> None:
        request = observed.message
        if isinstance(request, VoteRequest):
            partition = request.topics[0].partitions[0]
            if not partition.pre_vote:
                self._check_durable(observed.source, partition.replica_epoch, partition.replica_id, "requests votes")
                self._check_pre_votes(observed.source, partition.replica_epoch)
        elif isinstance(request, BeginQuorumEpochRequest):
            epoch = request.topics[0].partitions[0].leader_epoch
            self._check_durable(observed.source, epoch, None, "announces its leadership")

    def request_arrived(self, observed: ObservedRequest) -> None:
        member = self._cluster.member_on(observed.target)
        if isinstance(observed.message, VoteRequest) and member is not None:
            self._ends[observed] = member.files.end()

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        if isinstance(response, VoteResponse) and response.topics:
            given = response.topics[0].partitions[0]
            self._check_durable(observed.target, given.leader_epoch, None, "responds to VOTE")
            assert isinstance(observed.message, VoteRequest)
            requested = observed.message.topics[0].partitions[0]
            if given.vote_granted:
                self._granted(observed, requested)
        elif isinstance(response, (BeginQuorumEpochResponse, EndQuorumEpochResponse)) and response.topics:
            epoch = response.topics[0].partitions[0].leader_epoch
            self._check_durable(observed.target, epoch, None, f"responds to {ApiKey(observed.api).name}")

    def _granted(self, observed: ObservedRequest, requested: VoteRequestPartitionData) -> None:
        machine = observed.target
        member = self._cluster.member_on(machine)
        if not requested.pre_vote:
            self._check_durable(machine, requested.replica_epoch, requested.replica_id, "grants its vote")
        elif member is not None:
            self._pre_votes.setdefault((requested.replica_id, requested.replica_epoch), set()).add(member.id)
        # The voter decided between arrival and response; meanwhile its log may have grown or been truncated.
        end = (0, 0) if member is None else min(member.files.end(), self._ends.pop(observed, (0, 0)))
        if (requested.last_offset_epoch, requested.last_offset) < end:
            why = f"{machine} grants {'a pre-' if requested.pre_vote else 'its '}vote to node{requested.replica_id}"
            raise Violation("I-5", f"{why}, whose log ends at {requested.last_offset}; its own ends at {end[1]}")

    def _check_pre_votes(self, machine: str, epoch: int) -> None:
        """A node that was only partitioned must not depose a leader that the others follow (KIP-996)."""
        member = self._cluster.member_on(machine)
        if member is None or self._startup_epochs.get(member.id, 0) >= epoch:
            return
        voters = member.files.last_voters()
        count = len(self._cluster.voters() if voters is None else voters.voters)
        granted = {member.id} | self._pre_votes.get((member.id, epoch - 1), set())
        if len(granted) * 2 <= count:
            why = f"{machine} becomes a candidate in epoch {epoch}, and of {count} voters only"
            raise Violation("liveness", f"{why} {sorted(granted)} granted a pre-vote")

    def _check_durable(self, machine: str, epoch: int, vote: int | None, what: str) -> None:
        member = self._cluster.member_on(machine)
        if member is None or member.id not in self._cluster.controller_ids:
            return
        durable = member.files.quorum_state() or QuorumStateFile(0, _NO_VOTE, _NO_VOTE, "")
        if durable.epoch < epoch:
            raise Violation("I-2", f"{machine} {what} in epoch {epoch}, but durable is epoch {durable.epoch}")
        if vote is None:
            return
        if durable.epoch == epoch and vote not in (durable.voted_id, durable.leader_id):
            raise Violation("I-2", f"{machine} {what} (node{vote}, epoch {epoch}), but durable is {durable}")
        self._vote(member, epoch, vote)

    def _record(self, member: Member, found: QuorumStateFile) -> None:
        voter = str(member.directory_id)
        before = self._epochs.get(voter, 0)
        if found.epoch < before:
            raise Violation("I-2", f"{member.name} starts with epoch {found.epoch}, and was in epoch {before}")
        self._epochs[voter] = found.epoch
        if found.voted_id != _NO_VOTE:
            self._vote(member, found.epoch, found.voted_id)

    def _vote(self, member: Member, epoch: int, vote: int) -> None:
        self._epochs[str(member.directory_id)] = max(epoch, self._epochs.get(str(member.directory_id), 0))
        first = self._votes.setdefault((str(member.directory_id), epoch), vote)
        if first != vote:
            raise Violation("I-2", f"{member.name} votes for node{vote} in epoch {epoch}, after node{first}")
