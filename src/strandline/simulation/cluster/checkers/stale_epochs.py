"""I-7: requests with a stale broker epoch, leader epoch or partition epoch are rejected, and a registration of a former
process does not replace a live one.

A response is compared with what its sender knew when the request arrived: a registration committed later does not make
it wrong. A controller must know what is committed; a partition leader, what its own metadata image contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import lt
from weakref import WeakKeyDictionary

from strandline.metadata.values import PartitionKey
from strandline.model.ids import Uuid
from strandline.protocol.errors import response_error
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

WITH_BROKER_EPOCH = (
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    AllocateProducerIdsRequest,
)
"""The requests of a broker to the controller that carry its broker epoch."""


class StaleBrokerEpochsAreRejected(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: WeakKeyDictionary[ObservedRequest, dict[int, int]] = WeakKeyDictionary()
        """Broker id → epoch, as known to the receiver when the request arrived."""

    def request_arrived(self, observed: ObservedRequest) -> None:
        ids = [broker_id for broker_id, _ in _broker_epochs(observed.message)]
        if not ids:
            return
        view = self._cluster.metadata.image.latest
        if isinstance(observed.message, FetchRequest):
            member = self._cluster.member_on(observed.target)
            if member is None or member.node is None:
                return
            view = member.node.image.committed
        found = {broker_id: view.broker(broker_id) for broker_id in ids}
        self._known[observed] = {id_: broker.epoch for id_, broker in found.items() if broker is not None}

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        known = self._known.pop(observed, None)
        if known is None or bool(response_error(response)):
            return
        for broker_id, epoch in _broker_epochs(observed.message, _rejected(response)):
            if epoch < known.get(broker_id, -1):
                why = f"{observed.target} accepts {observed.api.name} of {observed.source} for broker {broker_id}"
                raise Violation("I-7", f"{why} with epoch {epoch}; its registration has epoch {known[broker_id]}")


PartitionKeys = frozenset[PartitionKey]


def _broker_epochs(request: Message, rejected: PartitionKeys | None = frozenset()) -> Iterator[tuple[int, int]]:
    """(Broker id, broker epoch) of the sender and of the proposed ISR members, except for partitions that were
    `rejected` (None: all)."""
    if rejected is None:
        return
    if isinstance(request, WITH_BROKER_EPOCH):
        yield request.broker_id, request.broker_epoch
    if isinstance(request, AlterPartitionRequest):
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.topic_id, partition.partition_index) not in rejected:
                    yield from (
                        (each.broker_id, each.broker_epoch)
                        for each in partition.new_isr_with_epochs
                        if each.broker_epoch >= 0
                    )
    if isinstance(request, FetchRequest) and request.replica_state.replica_id >= 0:
        yield request.replica_state.replica_id, request.replica_state.replica_epoch


def _rejected(response: Message) -> PartitionKeys | None:
    """The partitions for which the response has an error; None if it has one for all of them."""
    if isinstance(response, AlterPartitionResponse):
        errors = {
            (topic.topic_id, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
    elif isinstance(response, FetchResponse):
        errors = {
            (topic.topic_id, one.partition_index): one.error_code
            for topic in response.responses
            for one in topic.partitions
        }
    else:
        return frozenset()
    rejected = frozenset(key for key, error_code in errors.items() if error_code)
    return None if len(rejected) == len(errors) else rejected


class StaleIsrProposalsAreRejected(Checker):
    """An AlterPartition with an older leader or partition epoch is rejected, even if it repeats an accepted
    proposal."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: WeakKeyDictionary[ObservedRequest, dict[PartitionKey, tuple[int, int]]] = WeakKeyDictionary()
        """(Leader epoch, partition epoch) as committed when the request arrived."""

    def request_arrived(self, observed: ObservedRequest) -> None:
        if not isinstance(observed.message, AlterPartitionRequest):
            return
        known = self._known[observed] = {}
        for topic in observed.message.topics:
            for each in topic.partitions:
                info = self._cluster.metadata.image.latest.partition(topic.topic_id, each.partition_index)
                if info is not None:
                    known[topic.topic_id, each.partition_index] = (info.leader_epoch, info.partition_epoch)

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        known, rejected = self._known.pop(observed, None), _rejected(response)
        if known is None or rejected is None or bool(response_error(response)):
            return
        assert isinstance(observed.message, AlterPartitionRequest)
        for topic in observed.message.topics:
            for each in topic.partitions:
                key = (topic.topic_id, each.partition_index)
                epochs = (each.leader_epoch, each.partition_epoch)
                if key not in rejected and any(map(lt, epochs, known.get(key, (0, 0)))):
                    why = f"{observed.target} accepts an ISR that {observed.source} proposes for partition {key}"
                    raise Violation("I-7", f"{why} with epochs {epochs}; they were {known[key]} when it arrived")


class StaleRegistrationsAreRejected(Checker):
    """A registration sent by an earlier process of a broker does not replace that of a later process which sends
    heartbeats. (Before its first heartbeat, and once it is fenced, the later one may be replaced: it registers again if
    it is running.)"""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._boots: dict[Uuid, int] = {}
        """Incarnation id → the boot of its machine that it belongs to."""
        self._heartbeat_us: dict[tuple[int, int, str], int] = {}
        """(Broker id, epoch, controller) → arrival of the last accepted heartbeat."""
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._replaces: WeakKeyDictionary[ObservedRequest, tuple[int, str]] = WeakKeyDictionary()
        """The epoch of the registration that must not be replaced, and why."""
        self._fenced: set[tuple[int, int]] = set()
        """(Broker id, epoch) of registrations that were fenced last time they changed."""
        settings = cluster.plan.configs
        self._interval_us = int(settings["broker.heartbeat.interval.ms"]) * 1000
        self._trusted_us = min(self._interval_us, int(settings["broker.session.timeout.ms"]) * 850)
        """After a longer silence of a broker the controller may accept another process with the same directories."""
        cluster.metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.BrokerRegistrationChangeRecord) and record.fenced:
                self._fenced.discard((record.broker_id, record.broker_epoch))
                if record.fenced > 0:
                    self._fenced.add((record.broker_id, record.broker_epoch))

    def request_written(self, observed: ObservedRequest) -> None:
        if isinstance(observed.message, BrokerRegistrationRequest):
            member = self._cluster.members[observed.message.broker_id]
            self._boots.setdefault(observed.message.incarnation_id, member.machine.boots)

    def request_arrived(self, observed: ObservedRequest) -> None:
        now_us = self._cluster.simulation.loop.now_us
        self._arrived_us[observed] = now_us
        request = observed.message
        if not isinstance(request, BrokerRegistrationRequest):
            return
        known = self._cluster.metadata.image.latest.broker(request.broker_id)
        if known is None or known.incarnation_id == request.incarnation_id:
            return
        last_us = self._heartbeat_us.get((known.id, known.epoch, observed.target), -self._trusted_us)
        is_older = self._boots[request.incarnation_id] < self._boots.get(known.incarnation_id, 0)
        if is_older and now_us - last_us < self._trusted_us:
            why = f"epoch {known.epoch}, which sent a heartbeat {(now_us - last_us) / 1e6:.3f} s ago"
            self._replaces[observed] = known.epoch, why

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        request, failed = observed.message, bool(response_error(response))
        if isinstance(request, BrokerHeartbeatRequest) and not failed:
            key = (request.broker_id, request.broker_epoch, observed.target)
            self._heartbeat_us[key] = self._arrived_us.get(observed, 0)
        replaced = self._replaces.pop(observed, None)
        if replaced is not None and not failed:
            assert isinstance(request, BrokerRegistrationRequest)
            epoch, described = replaced
            if (request.broker_id, epoch) in self._fenced:
                return
            why = f"{observed.target} registers an earlier process of broker {request.broker_id}"
            raise Violation("I-7", f"{why} in place of {described}")


class OneProcessPerBroker(Checker):
    """No committed registration replaces one that is not fenced and whose process has just sent a heartbeat.

    Not checked: a broker in the process of the controller, whose heartbeats are not on the network.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._registered: dict[int, kinds.RegisterBrokerRecord] = {}
        self._unfenced: set[int] = set()
        self._heartbeat_us: dict[tuple[int, int, str], int] = {}
        """(Broker id, epoch, controller) → arrival of the last accepted heartbeat."""
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._active_us = 0
        self._session_us = int(cluster.plan.configs["broker.session.timeout.ms"]) * 800
        """Shorter than the session timeout: clocks may run a tenth slower or faster than the simulation's."""
        cluster.metadata.subscribe(self._on_batch)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.is_active and not before.is_active:
            self._active_us = self._cluster.simulation.loop.now_us

    def request_arrived(self, observed: ObservedRequest) -> None:
        self._arrived_us[observed] = self._cluster.simulation.loop.now_us

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        request = observed.message
        if isinstance(request, BrokerHeartbeatRequest) and not response_error(response):
            key = (request.broker_id, request.broker_epoch, observed.target)
            self._heartbeat_us[key] = self._arrived_us.get(observed, 0)

    def _on_batch(self, batch: MetadataBatch) -> None:
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
        last_us = self._heartbeat_us.get((known.broker_id, known.broker_epoch, leader.name), 0)
        silent_us = self._cluster.simulation.loop.now_us - last_us
        if last_us > self._active_us and silent_us < self._session_us:
            why = f"broker {record.broker_id} is registered again, and its registration of epoch {known.broker_epoch}"
            raise Violation("I-7", f"{why} is not fenced and sent a heartbeat {silent_us / 1e6:.3f} s ago")
