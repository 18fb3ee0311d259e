"""Random sequences of events for Kafka's ReplicationControlManager and our machines: equal records and responses.

Brokers are fenced, unfenced and restarted, cleanly or not, and lose directories; leaders change ISRs; partitions are
reassigned and leaders elected. Our machines handle a sequence first, so that requests fit the state; then Kafka gets
the same events, and the results are compared one by one. A comparison ends early where Kafka writes a record that
would break our invariants (see `strandline.controller.partitions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from compat.java.jvm import java
from strandline.controller.decisions import Decision, Steps, finish
from strandline.controller.directory_assignments import DirectoryAssignments
from strandline.controller.elect_leaders import LeaderElections
from strandline.controller.isr import IsrChanges
from strandline.controller.partition_changes import elect_leaderless, remove_from_isrs
from strandline.controller.reassignments import Reassignments, is_reassigning
from strandline.metadata.values import BrokerInfo, PartitionInfo
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    BrokerState,
)
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.types import Message
from unit.controller.machine_cluster import MachineCluster

SEQUENCES = 120
EVENTS = 60
BROKERS = range(1, 6)
TOPICS = 5
TOPIC = 1000

Event = dict[str, Any]
Outcome = tuple[dict[int, PartitionInfo], Any, list[Message]]
"""(partitions before the event, our response, our records)"""


class EventSequence:
    """Events, and the outcome of each in our machines. Every topic has one partition: see `partitions` on min ISR."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.elr = seed % 3 != 0
        self.cleared = False
        level = 30 if self.elr else self.random.choice((11, 16, 30))
        self.cluster = MachineCluster(0, elr=self.elr)
        self.cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=level))
        self.events: list[Event] = [{"event": "begin", "elr": self.elr, "metadata_version": level, "brokers": []}]
        self.outcomes: list[Outcome] = [({}, None, [])]
        for broker_id in BROKERS:
            homes = [Uuid.of(7, 100 * broker_id + n) for n in range(1 + broker_id % 2)]
            self.events[0]["brokers"].append(self._register(broker_id, homes, fenced=False))
        self.events[0]["topics"] = [self._create(number) for number in range(TOPICS)]

    def _register(self, broker_id: int, homes: list[Uuid], *, fenced: bool) -> Event:
        epoch = self.cluster.image.end_offset
        self.cluster.write(
            RegisterBrokerRecord(
                broker_id=broker_id, broker_epoch=epoch, rack=None, fenced=fenced, log_dirs=list(homes)
            )
        )
        return {"id": broker_id, "epoch": epoch, "fenced": fenced, "directories": [str(home) for home in homes]}

    def _create(self, number: int) -> Event:
        replicas = self.random.sample(BROKERS, self.random.randint(1, 4))
        topic_id, name = Uuid.of(1, TOPIC + number), f"t{number}"
        topics = self.cluster.topics
        records = [TopicRecord(name=name, topic_id=topic_id)]
        self.cluster.write(*records)
        made: list[Message] = []
        for _ in topics._partition_records(topic_id, 0, [replicas], made):
            pass
        assert isinstance(made[0], PartitionRecord)
        self.cluster.write(*made)
        return {"name": name, "number": number, "partitions": [replicas]}

    def add(self, event: Event, records: list[Message], response: Any = None) -> None:
        known = {number: self.cluster.partition(f"t{number}") for number in range(TOPICS)}
        self.cluster.write(*records)
        self.events.append(event)
        self.outcomes.append((known, response, records))

    def decide(self, event: Event, steps: Steps[Any], response: Callable[[Any], Any]) -> None:
        decision: Decision[Any] = finish(steps)
        self.add(event, decision.records, response(decision.response))

    def add_random_event(self) -> None:
        turn = self.random.random()
        if turn < 0.45:
            self.broker_event()
        elif turn < 0.7:
            self.alter_partition()
        elif turn < 0.85:
            self.reassign()
        else:
            self.other_event()

    def a_broker(self) -> BrokerInfo:
        return self.random.choice(self.cluster.view.brokers())

    def a_topic(self) -> tuple[int, str, Uuid, PartitionInfo]:
        number = self.random.randrange(TOPICS)
        return number, f"t{number}", Uuid.of(1, TOPIC + number), self.cluster.partition(f"t{number}")

    def broker_event(self) -> None:
        broker, records = self.a_broker(), list[Message]()
        view, rules = self.cluster.view, self.cluster.rules
        if broker.fenced and not broker.in_controlled_shutdown and self.random.random() < 0.8:
            records.append(_change(broker, fenced=-1))
            _walk(elect_leaderless(view, rules, broker.id, records))
            self.add({"event": "unfence", "id": broker.id}, records)
        elif self.random.random() < 0.2:
            # Kafka's index of eligible leaders is not updated when ELRs are cleared, and would be used here.
            clean = not self.elr or self.cleared or self.random.random() < 0.5
            _walk(remove_from_isrs(view, rules, broker.id, records, unclean_shutdown=not clean))
            event: Event = {"event": "restart", "clean": clean}
            self.add(event, records)
            event["broker"] = self._register(broker.id, list(broker.directories), fenced=True)
        elif self.random.random() < 0.15 and len(broker.directories) > 1 and view.metadata_version >= 17:
            failed, *online = self.random.sample(broker.directories, len(broker.directories))
            _walk(remove_from_isrs(view, rules, broker.id, records, directories=[failed]))
            records.append(_change(broker, log_dirs=sorted(online)))
            self.add({"event": "directories fail", "id": broker.id, "directories": [str(failed)]}, records)
        elif not broker.fenced and self.random.random() < 0.3:
            if not broker.in_controlled_shutdown:
                records.append(_change(broker, in_controlled_shutdown=1))
            _walk(remove_from_isrs(view, rules, broker.id, records))
            self.add({"event": "shut down", "id": broker.id}, records)
        elif not broker.fenced:
            _walk(remove_from_isrs(view, rules, broker.id, records))
            records.append(_change(broker, fenced=1))
            self.add({"event": "fence", "id": broker.id}, records)

    def alter_partition(self) -> None:
        number, _, topic_id, partition = self.a_topic()
        sender = self.a_broker() if self.random.random() < 0.1 else self.cluster.view.broker(partition.leader)
        if sender is None:
            return
        live = [broker.id for broker in self.cluster.view.brokers() if broker.active or self.random.random() < 0.1]
        able = [replica for replica in partition.replicas if replica in live]
        isr = self.random.sample(able, self.random.randint(0, len(able)))
        if sender.id not in isr and self.random.random() < 0.95:
            isr.append(sender.id)
        epochs = {broker.id: broker.epoch for broker in self.cluster.view.brokers()}
        members = [[each, self.random.choice((-1, *[epochs[each]] * 18, 3))] for each in isr]
        off = self.random.choice((0,) * 12 + (-1, 1))
        event = {
            "event": "alter partition",
            "number": number,
            "partition": 0,
            "id": sender.id,
            "leader_epoch": partition.leader_epoch + self.random.choice((0,) * 12 + (-1, 1)),
            "partition_epoch": partition.partition_epoch + off,
            "recovery_state": self.random.choice((0, 0, 0, 0, partition.leader_recovery_state, 1)),
            "isr": members,
        }
        data = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=event["leader_epoch"],
            partition_epoch=event["partition_epoch"],
            leader_recovery_state=event["recovery_state"],
            new_isr_with_epochs=[BrokerState(*member) for member in members],
        )
        topics = [AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[data])]
        request = AlterPartitionRequest(broker_id=sender.id, broker_epoch=sender.epoch, topics=topics)
        self.decide(event, IsrChanges(self.cluster.view, self.cluster.new_changes).alter(request, 3), _altered)

    def reassign(self) -> None:
        """Not during another reassignment, and no cancellation without an original replica in the ISR: Kafka fails."""
        number, name, _, partition = self.a_topic()
        replicas: list[int] | None = None
        if is_reassigning(partition):
            if not set(partition.isr) - set(partition.adding):
                return
        elif self.random.random() < 0.9:
            replicas = self.random.sample((*BROKERS, 9), self.random.randint(1, 3))
        allowed = self.random.random() < 0.7
        event = {
            "event": "reassign",
            "number": number,
            "topic": name,
            "partition": 0,
            "replicas": replicas,
            "allow_factor_change": allowed,
        }
        wish = ReassignableTopic(name=name, partitions=[ReassignablePartition(0, replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[wish], allow_replication_factor_change=allowed)
        steps = Reassignments(self.cluster.view, self.cluster.new_changes).alter(request)
        self.decide(event, steps, lambda response: response.responses[0].partitions[0].error_code)

    def other_event(self) -> None:
        number, name, topic_id, partition = self.a_topic()
        leaders = LeaderElections(self.cluster.view, self.cluster.new_changes)
        kind = self.random.choice(("elect", "balance", "elect unclean", "min isr", "unclean", "assign"))
        if kind == "elect":
            type_ = self.random.choice((0, 0, 1))
            request = ElectLeadersRequest(election_type=type_, topic_partitions=None)
            self.decide({"event": kind, "type": type_}, leaders.elect(request), _elected)
        elif kind in ("balance", "elect unclean"):
            steps = leaders.balance() if kind == "balance" else leaders.elect_unclean()
            self.decide({"event": kind}, steps, bool)
        elif kind == "min isr":
            self.configure(name, "min.insync.replicas", str(self.random.randint(1, 3)))
            if self.elr:
                self.cleared = self.cleared or bool(partition.elr)
                self.add({"event": "clear elr", "topic": name}, [])
                self.cluster.write(ClearElrRecord(topic_name=name))
        elif kind == "unclean":
            self.configure(name, "unclean.leader.election.enable", self.random.choice(("true", "false", "false")))
        elif self.cluster.view.metadata_version >= 17:
            self.assign(number, topic_id, self.a_broker())

    def configure(self, topic: str, key: str, value: str) -> None:
        self.add({"event": "configure", "topic": topic, "key": key, "value": value}, [])
        self.cluster.write(ConfigRecord(resource_type=2, resource_name=topic, name=key, value=value))

    def assign(self, number: int, topic_id: Uuid, broker: BrokerInfo) -> None:
        home = self.random.choice(broker.directories)
        event = {"event": "assign", "number": number, "partition": 0, "id": broker.id, "directory": str(home)}
        partitions = [AssignReplicasToDirsRequestPartitionData(partition_index=0)]
        topics = [AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=partitions)]
        request = AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[AssignReplicasToDirsRequestDirectoryData(id=home, topics=topics)],
        )
        steps = DirectoryAssignments(self.cluster.view, self.cluster.new_changes).assign(request)
        self.decide(event, steps, lambda response: response.directories[0].topics[0].partitions[0].error_code)


def _walk(walk: Iterator[None]) -> None:
    for _ in walk:
        pass


def _change(broker: BrokerInfo, **fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, **fields)


def _altered(response: Any) -> list[Any]:
    partition = response.topics[0].partitions[0]
    return [
        partition.error_code,
        partition.leader_id,
        partition.leader_epoch,
        partition.isr,
        partition.leader_recovery_state,
        partition.partition_epoch,
    ]


def _elected(response: Any) -> list[Any]:
    return sorted(
        [topic.topic, result.partition_id, result.error_code]
        for topic in response.replica_election_results
        for result in topic.partition_result
    )


def fields_of(record: Message) -> Event:
    if isinstance(record, BrokerRegistrationChangeRecord):
        return {
            "broker": record.broker_id,
            "fenced": record.fenced,
            "in_controlled_shutdown": record.in_controlled_shutdown,
            "log_dirs": sorted(str(each) for each in record.log_dirs),
        }
    assert isinstance(record, PartitionChangeRecord)
    homes = record.directories
    return {
        "topic": int.from_bytes(record.topic_id[8:], "big") - TOPIC,
        "partition": record.partition_id,
        "leader": record.leader,
        "leader_recovery_state": record.leader_recovery_state,
        "isr": record.isr,
        "replicas": record.replicas,
        "adding_replicas": record.adding_replicas,
        "removing_replicas": record.removing_replicas,
        "eligible_leader_replicas": record.eligible_leader_replicas,
        "last_known_elr": record.last_known_elr,
        "directories": None if homes is None else [str(home) for home in homes],
    }


def in_order(records: list[Event]) -> tuple[bool, list[Event], list[Event]]:
    """Partitions may come in any order, but whether the record of the broker comes first or last matters."""
    brokers = [record for record in records if "broker" in record]
    for broker in brokers:
        broker["log_dirs"] = sorted(broker["log_dirs"])
    partitions = sorted((record for record in records if "topic" in record), key=lambda record: record["topic"])
    return bool(records) and "broker" in records[0], brokers, partitions


def breaks_invariants(kafkas: list[Event], known: dict[int, PartitionInfo]) -> bool:
    """Kafka keeps unassigned replicas in the ELR, and -1 as the last known leader."""
    for record in kafkas:
        if "topic" in record:
            partition, elr = known[record["topic"]], record["eligible_leader_replicas"]
            assigned = record["replicas"] or partition.replicas
            if record["last_known_elr"] == [-1] or not set(partition.elr if elr is None else elr) <= set(assigned):
                return True
    return False


def test_event_sequences_have_the_records_and_responses_of_kafka(oracle_programs: str) -> None:
    sequences = [EventSequence(seed) for seed in range(SEQUENCES)]
    for sequence in sequences:
        while len(sequence.events) < EVENTS:
            sequence.add_random_event()
    events = [event for sequence in sequences for event in sequence.events]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    done = java(oracle_programs, "org.apache.kafka.controller.KafkaReplication", text=lines, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    # Kafka logs to standard output too.
    results = iter([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])
    compared = 0
    for seed, sequence in enumerate(sequences):
        kafkas = [next(results) for _ in sequence.events]
        compared += compare(seed, sequence, kafkas)
    assert compared > SEQUENCES * EVENTS // 2, "most sequences were compared to their end"


def compare(seed: int, sequence: EventSequence, kafkas: list[Event]) -> int:
    """The number of events with equal outcomes, up to the end or to where Kafka breaks an invariant."""
    for number, (event, outcome, kafka) in enumerate(zip(sequence.events, sequence.outcomes, kafkas, strict=True)):
        if number == 0:
            continue
        known, response, records = outcome
        theirs = kafka["records"]
        if breaks_invariants(theirs, known):
            return number
        expected = sorted(kafka["response"]) if event["event"] == "elect" else kafka["response"]
        where = f"sequence {seed}, event {number}: {json.dumps(event)}"
        assert response == expected, where
        assert in_order([fields_of(record) for record in records]) == in_order(theirs), where
    return len(sequence.events)
