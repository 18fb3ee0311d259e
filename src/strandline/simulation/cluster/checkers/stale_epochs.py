"""I-7, on the wire: nobody old is listened to. A broker that speaks as one it used to be is refused, whatever it asks.

What counts is what the one that answers could know when the request reached it: a registration that was committed while
the answer waited does not make the answer wrong. A controller must know what is committed; a leader of partitions, what
its own metadata says.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import lt
from weakref import WeakKeyDictionary

from strandline.model.ids import Uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.producers import AllocateProducerIdsRequest
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

SIGNED = (BrokerHeartbeatRequest, AlterPartitionRequest, AssignReplicasToDirsRequest, AllocateProducerIdsRequest)
"""What a broker asks of the controller in the name of its registration."""


class StaleBrokerEpochsAreRejected(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: WeakKeyDictionary[ObservedRequest, dict[int, int]] = WeakKeyDictionary()
        """Broker id → epoch, as known where the request arrived when it did."""

    def arrived(self, asked: ObservedRequest) -> None:
        ids = [broker_id for broker_id, _ in _speakers(asked.message)]
        if not ids:
            return
        view = self._cluster.ledger.image.latest
        if isinstance(asked.message, FetchRequest):
            member = self._cluster.named(asked.target)
            if member is None or member.node is None:
                return
            view = member.node.image.committed
        found = {broker_id: view.broker(broker_id) for broker_id in ids}
        self._known[asked] = {id_: broker.epoch for id_, broker in found.items() if broker is not None}

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        known = self._known.pop(asked, None)
        if known is None or bool(getattr(response, "error_code", 0)):
            return
        for broker_id, epoch in _speakers(asked.message, _refused(response)):
            if epoch < known.get(broker_id, -1):
                why = f"{asked.target} accepts {asked.api.name} of {asked.source} for broker {broker_id}"
                raise Violation("I-7", f"{why} with epoch {epoch}; it had registered with epoch {known[broker_id]}")


Places = frozenset[tuple[Uuid, int]]
"""Partitions by topic id and index."""


def _speakers(request: Message, refused: Places | None = frozenset()) -> Iterator[tuple[int, int]]:
    """(Broker id, broker epoch) of whoever says this, and of those it vouches for, except where it was `refused` (None:
    everywhere)."""
    if refused is None:
        return
    if isinstance(request, SIGNED):
        yield request.broker_id, request.broker_epoch
    if isinstance(request, AlterPartitionRequest):
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.topic_id, partition.partition_index) not in refused:
                    yield from (
                        (each.broker_id, each.broker_epoch)
                        for each in partition.new_isr_with_epochs
                        if each.broker_epoch >= 0
                    )
    if isinstance(request, FetchRequest) and request.replica_state.replica_id >= 0:
        yield request.replica_state.replica_id, request.replica_state.replica_epoch


def _refused(response: Message) -> Places | None:
    """Where the answer says no; None when it says nothing else, and so no word counts."""
    if isinstance(response, AlterPartitionResponse):
        answers = {
            (topic.topic_id, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
    elif isinstance(response, FetchResponse):
        answers = {
            (topic.topic_id, one.partition_index): one.error_code
            for topic in response.responses
            for one in topic.partitions
        }
    else:
        return frozenset()
    refused = frozenset(place for place, error_code in answers.items() if error_code)
    return None if len(refused) == len(answers) else refused


class StaleIsrProposalsAreRejected(Checker):
    """I-7 of partitions: an ISR is proposed for a partition as it is. What was known of it before may be true no more,
    be it a proposal that was adopted already and is only repeated."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: WeakKeyDictionary[ObservedRequest, dict[tuple[Uuid, int], tuple[int, int]]] = WeakKeyDictionary()
        """(Leader epoch, partition epoch) as committed when the request arrived."""

    def arrived(self, asked: ObservedRequest) -> None:
        if not isinstance(asked.message, AlterPartitionRequest):
            return
        known = self._known[asked] = {}
        for topic in asked.message.topics:
            for each in topic.partitions:
                info = self._cluster.ledger.image.latest.partition(topic.topic_id, each.partition_index)
                if info is not None:
                    known[topic.topic_id, each.partition_index] = (info.leader_epoch, info.partition_epoch)

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        known, refused = self._known.pop(asked, None), _refused(response)
        if known is None or refused is None or bool(getattr(response, "error_code", 0)):
            return
        assert isinstance(asked.message, AlterPartitionRequest)
        for topic in asked.message.topics:
            for each in topic.partitions:
                place = (topic.topic_id, each.partition_index)
                said = (each.leader_epoch, each.partition_epoch)
                if place not in refused and any(map(lt, said, known.get(place, (0, 0)))):
                    why = f"{asked.target} adopts an ISR that {asked.source} proposes for partition {place}"
                    raise Violation("I-7", f"{why} of epochs {said}; they were {known[place]} when it was asked")


class StaleRegistrationsAreRejected(Checker):
    """I-7 of processes: a registration that an earlier process of a broker had sent does not replace a later one that
    is heard. (One that has registered and was not heard yet may be replaced: it registers again.)"""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._boots: dict[Uuid, int] = {}
        """Which start of its machine an incarnation belongs to."""
        self._heard_us: dict[tuple[int, int, str], int] = {}
        """(Broker id, epoch, by whom) → when the last heartbeat that was taken arrived."""
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._replaces: WeakKeyDictionary[ObservedRequest, str] = WeakKeyDictionary()
        settings = cluster.plan.settings
        self._interval_us = int(settings["broker.heartbeat.interval.ms"]) * 1000
        # A living one that is missed for longer than this may be taken for dead by who holds its directories.
        self._trusted_us = min(self._interval_us, int(settings["broker.session.timeout.ms"]) * 850)

    def asked(self, asked: ObservedRequest) -> None:
        if isinstance(asked.message, BrokerRegistrationRequest):
            member = self._cluster.members[asked.message.broker_id]
            self._boots.setdefault(asked.message.incarnation_id, member.machine.boots)

    def arrived(self, asked: ObservedRequest) -> None:
        now_us = self._cluster.simulation.loop.now_us
        self._arrived_us[asked] = now_us
        request = asked.message
        if not isinstance(request, BrokerRegistrationRequest):
            return
        known = self._cluster.ledger.image.latest.broker(request.broker_id)
        if known is None or known.incarnation_id == request.incarnation_id:
            return
        heard_us = self._heard_us.get((known.id, known.epoch, asked.target), -self._trusted_us)
        is_older = self._boots[request.incarnation_id] < self._boots.get(known.incarnation_id, 0)
        if is_older and now_us - heard_us < self._trusted_us:
            self._replaces[asked] = f"epoch {known.epoch}, which was heard {(now_us - heard_us) / 1e6:.3f} s before"

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        request, failed = asked.message, bool(getattr(response, "error_code", 0))
        if isinstance(request, BrokerHeartbeatRequest) and not failed:
            key = (request.broker_id, request.broker_epoch, asked.target)
            self._heard_us[key] = self._arrived_us.get(asked, 0)
        replaced = self._replaces.pop(asked, None)
        if replaced is not None and not failed:
            assert isinstance(request, BrokerRegistrationRequest)
            why = f"{asked.target} registers an earlier process of broker {request.broker_id}"
            raise Violation("I-7", f"{why} in the place of {replaced}")


class OneProcessPerBroker(Checker):
    """I-7 of processes, as committed: nobody takes the place of one that is not fenced and was heard a moment ago.

    Not judged: a broker in the process of the controller, whose heartbeats are not heard here.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._registered: dict[int, kinds.RegisterBrokerRecord] = {}
        self._unfenced: set[int] = set()
        self._heard_us: dict[tuple[int, int, str], int] = {}
        """(Broker id, epoch, by whom) → when the last heartbeat that was taken arrived."""
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._active_us = 0
        # Clocks may run a tenth slower or faster than the simulation's.
        self._session_us = int(cluster.plan.settings["broker.session.timeout.ms"]) * 800
        cluster.ledger.tell(self._committed)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.is_active and not before.is_active:
            self._active_us = self._cluster.simulation.loop.now_us

    def arrived(self, asked: ObservedRequest) -> None:
        self._arrived_us[asked] = self._cluster.simulation.loop.now_us

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        request = asked.message
        if isinstance(request, BrokerHeartbeatRequest) and not getattr(response, "error_code", 0):
            key = (request.broker_id, request.broker_epoch, asked.target)
            self._heard_us[key] = self._arrived_us.get(asked, 0)

    def _committed(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            match record:
                case kinds.RegisterBrokerRecord():
                    self._check(record)
                    self._registered[record.broker_id] = record
                    self._note(record.broker_id, record.fenced)
                case kinds.BrokerRegistrationChangeRecord() if record.fenced:
                    self._note(record.broker_id, record.fenced > 0)
                case kinds.UnregisterBrokerRecord():
                    self._note(record.broker_id, True)

    def _note(self, broker_id: int, is_fenced: bool) -> None:
        self._unfenced.discard(broker_id)
        if not is_fenced:
            self._unfenced.add(broker_id)

    def _check(self, record: kinds.RegisterBrokerRecord) -> None:
        known, leader = self._registered.get(record.broker_id), self._cluster.leader()
        if known is None or record.broker_id not in self._unfenced or known.incarnation_id == record.incarnation_id:
            return
        if leader is None or leader.id == record.broker_id:
            return
        heard_us = self._heard_us.get((known.broker_id, known.broker_epoch, leader.name), 0)
        silent_us = self._cluster.simulation.loop.now_us - heard_us
        if heard_us > self._active_us and silent_us < self._session_us:
            why = f"broker {record.broker_id} is registered anew, and its predecessor (epoch {known.broker_epoch})"
            raise Violation("I-7", f"{why} is not fenced and was heard {silent_us / 1e6:.3f} s before")
