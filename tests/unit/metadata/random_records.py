"""Random legal metadata records of every type, in batches.

A `History` tracks the state of the cluster as far as legal records require: it changes and removes what exists, at a
metadata.version that rises. Some batches are part of transactions, which end or are aborted in one batch or across
several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from strandline.metadata.record_versions import (
    CONTROLLERS_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    ELR_SINCE,
    SCRAM_SINCE,
    TOKENS_SINCE,
    TRANSACTIONS_SINCE,
)
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid, random_uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.types import Message

LEVELS = (7, 8, 11, 13, 14, 15, 17, 20, 23, 26, 29, 30)
BROKERS = range(1, 7)
MIGRATION_SINCE = 8


@dataclass(slots=True)
class Known:
    """The cluster's state, from which legal records are made."""

    level: int
    brokers: dict[int, int] = field(default_factory=dict)
    topics: dict[str, Uuid] = field(default_factory=dict)
    partitions: dict[str, list[list[int]]] = field(default_factory=dict)
    acls: list[Uuid] = field(default_factory=list)
    scram: list[tuple[str, int]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    configs: list[tuple[int, str, str]] = field(default_factory=list)
    quotas: list[tuple[tuple[tuple[str, str | None], ...], str]] = field(default_factory=list)
    next_producer_id: int = 0
    configured: set[str] = field(default_factory=set)
    """Topics whose configs changed in this batch or transaction."""


class History:
    def __init__(self, seed: int, level: int = 7) -> None:
        self.random = Random(seed)
        self.known = Known(level)
        self.offset = 0

    def batches(self, count: int) -> Iterator[tuple[int, list[Message], int]]:
        """(base offset, records, the metadata.version at which they are written)"""
        self.offset = self.random.randrange(1, 5)
        yield from self._batch([kinds.FeatureLevelRecord(name="metadata.version", feature_level=self.known.level)])
        yield from self._batch(self._first_records())
        made = 0
        while made < count:
            made += 1
            self.known.configured.clear()
            if self.known.level >= TRANSACTIONS_SINCE and self.random.random() < 0.15:
                yield from self._transaction()
            elif self.random.random() < 0.04 and self.known.level < LEVELS[-1]:
                yield from self._rise()
            else:
                yield from self._batch(self._records(self.random.randrange(1, 8)))
            self.offset += self.random.choice((0, 0, 0, 1, 2))

    def _batch(self, records: list[Message]) -> Iterator[tuple[int, list[Message], int]]:
        if records:
            yield self.offset, records, self.known.level
            self.offset += len(records)

    def _rise(self) -> Iterator[tuple[int, list[Message], int]]:
        """In a batch of its own, written at the level before it."""
        higher = [level for level in LEVELS if level > self.known.level]
        yield from self._batch([kinds.FeatureLevelRecord(name="metadata.version", feature_level=higher[0])])
        self.known.level = higher[0]
        yield from self._batch(self._first_records())

    def _first_records(self) -> list[Message]:
        """The records that must come first at this level.

        With ELR disabled, Kafka's snapshots omit the ELR. And a credential created in the same commit that deletes the
        last one of its mechanism is lost on Kafka's brokers, so there is always another one.
        """
        records: list[Message] = []
        if self.known.level >= ELR_SINCE:
            records.append(kinds.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        if self.known.level >= SCRAM_SINCE:
            records += [kinds.UserScramCredentialRecord(name="always", mechanism=mechanism) for mechanism in (1, 2)]
        return records

    def _transaction(self) -> Iterator[tuple[int, list[Message], int]]:
        before, aborts, name = deepcopy(self.known), self.random.random() < 0.4, self.random.choice((None, "a name"))
        begin: list[Message] = [kinds.BeginTransactionRecord(name=name)]
        end: list[Message] = [kinds.AbortTransactionRecord(reason=name) if aborts else kinds.EndTransactionRecord()]
        # One batch, or begin, records and end in separate batches.
        if self.random.random() < 0.4:
            self.offset += 1
            records = self._records(4)
            self.offset -= 1
            yield from self._batch([*begin, *records, *end])
        else:
            yield from self._batch(begin)
            for _ in range(self.random.randrange(0, 4)):
                yield from self._batch(self._records(self.random.randrange(1, 6)))
            yield from self._batch(end)
        if aborts:
            self.known = before

    def _records(self, count: int) -> list[Message]:
        """Broker epochs are offsets in the batch that starts at `self.offset`."""
        records: list[Message] = []
        start = self.offset
        while len(records) < count:
            self.offset = start + len(records)
            records += self.random.choice(self._deeds())()
        self.offset = start
        return records

    def _deeds(self) -> list[Callable[[], list[Message]]]:
        level = self.known.level
        deeds = [self.register, self.create_topic, self.configure, self.limit, self.produce, self.grant, self.nothing]
        deeds += [self.change_partition] * 6
        if self.known.brokers:
            deeds += [self.change_broker, self.change_broker, self.fence_as_before]
        if len(self.known.brokers) > 3:
            deeds.append(self.unregister)
        if len(self.known.topics) > 3:
            deeds.append(self.remove_topic)
        if self.known.acls:
            deeds.append(self.revoke)
        if level >= MIGRATION_SINCE:
            deeds.append(self.migrate)
        if level >= SCRAM_SINCE:
            deeds += [self.credential, self.forget_credential]
        if level >= TOKENS_SINCE:
            deeds += [self.token, self.forget_token]
        if level >= CONTROLLERS_SINCE:
            deeds.append(self.register_controller)
        if level >= ELR_SINCE:
            deeds += [self.feature, self.clear_elr]
        return deeds

    def nothing(self) -> list[Message]:
        return [kinds.NoOpRecord()]

    def migrate(self) -> list[Message]:
        """Kafka 4 reads the record and ignores it."""
        return [kinds.ZkMigrationStateRecord(zk_migration_state=self.random.randrange(4))]

    def feature(self) -> list[Message]:
        names = ("group.version", "share.version", "transaction.version")
        return [
            kinds.FeatureLevelRecord(name=self.random.choice(names), feature_level=self.random.randrange(2)),
        ]

    def directories(self, broker_id: int) -> list[Uuid]:
        return [Uuid.of(77, 1000 * broker_id + number) for number in range(1, self.random.randrange(2, 4))]

    def register(self) -> list[Message]:
        broker_id, level, random = self.random.choice(BROKERS), self.known.level, self.random
        self.known.brokers[broker_id] = self.offset
        features = [("metadata.version", 7, 30)] + ([("group.version", 0, 1)] if random.random() < 0.5 else [])
        directories = self.directories(broker_id) if level >= DIRECTORIES_SINCE else []
        cordoned = None
        if level >= CORDONED_DIRECTORIES_SINCE and random.random() < 0.5:
            cordoned = directories[:1]
        return [
            kinds.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=random_uuid(random),
                broker_epoch=self.offset,
                end_points=[
                    kinds.BrokerEndpoint(
                        name=name, host=f"host-{broker_id}", port=9092 + number, security_protocol=number
                    )
                    for number, name in enumerate(("PLAINTEXT", "SSL")[: random.randrange(1, 3)])
                ],
                features=[
                    kinds.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, low, high in features
                ],
                rack=random.choice((None, "r1", "")),
                fenced=random.random() < 0.7,
                in_controlled_shutdown=random.random() < 0.1,
                log_dirs=directories,
                cordoned_log_dirs=cordoned,
            )
        ]

    def some_broker(self) -> tuple[int, int]:
        broker_id = self.random.choice(sorted(self.known.brokers))
        return broker_id, self.known.brokers[broker_id]

    def unregister(self) -> list[Message]:
        broker_id, epoch = self.some_broker()
        del self.known.brokers[broker_id]
        return [kinds.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)]

    def change_broker(self) -> list[Message]:
        broker_id, epoch = self.some_broker()
        record = kinds.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch)
        record.fenced = self.random.choice((-1, 0, 1))
        record.in_controlled_shutdown = self.random.choice((0, 0, 1))
        if self.known.level >= DIRECTORIES_SINCE and self.random.random() < 0.3:
            record.log_dirs = self.directories(broker_id)
        if self.known.level >= CORDONED_DIRECTORIES_SINCE and self.random.random() < 0.3:
            record.cordoned_log_dirs = self.directories(broker_id)[: self.random.randrange(2)]
        return [record]

    def fence_as_before(self) -> list[Message]:
        broker_id, epoch = self.some_broker()
        kind = self.random.choice((kinds.FenceBrokerRecord, kinds.UnfenceBrokerRecord))
        return [kind(id=broker_id, epoch=epoch)]

    def register_controller(self) -> list[Message]:
        controller_id = self.random.randrange(100, 103)
        return [
            kinds.RegisterControllerRecord(
                controller_id=controller_id,
                incarnation_id=random_uuid(self.random),
                zk_migration_ready=False,
                end_points=[kinds.ControllerEndpoint(name="CONTROLLER", host="c", port=9093)],
                features=[
                    kinds.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)
                ],
            )
        ]

    def create_topic(self) -> list[Message]:
        name = f"topic.{self.random.randrange(12)}"
        if name in self.known.topics:
            return self.more_partitions(name)
        topic_id = random_uuid(self.random)
        self.known.topics[name] = topic_id
        self.known.partitions[name] = []
        return [kinds.TopicRecord(name=name, topic_id=topic_id), *self.more_partitions(name)]

    def more_partitions(self, name: str) -> list[Message]:
        records: list[Message] = []
        partitions = self.known.partitions[name]
        for _ in range(self.random.randrange(1, 4)):
            replicas = self.random.sample(BROKERS, 3)
            isr = replicas[: self.random.randrange(0, 4)]
            record = kinds.PartitionRecord(
                partition_id=len(partitions),
                topic_id=self.known.topics[name],
                replicas=replicas,
                isr=isr,
                leader=isr[0] if isr else -1,
                leader_recovery_state=self.random.choice((0, 0, 1)),
                leader_epoch=self.random.randrange(5),
                partition_epoch=self.random.randrange(5),
            )
            if self.random.random() < 0.2:
                record.removing_replicas, record.adding_replicas = replicas[:1], replicas[1:2]
            if self.known.level >= DIRECTORIES_SINCE:
                record.directories = [self.directory(replica) for replica in replicas]
            if self.known.level >= ELR_SINCE:
                record.eligible_leader_replicas = [replica for replica in replicas if replica not in isr] or None
                record.last_known_elr = self.random.choice((None, replicas[:1]))
            partitions.append(replicas)
            records.append(record)
        return records

    def directory(self, broker_id: int) -> Uuid:
        return self.random.choice((Uuid.of(77, 1000 * broker_id + 1), DIRECTORY_UNASSIGNED, DIRECTORY_LOST))

    def remove_topic(self) -> list[Message]:
        # Kafka's brokers keep the configs of a topic that is configured and deleted in one commit.
        removable = sorted(self.known.topics.keys() - self.known.configured)
        if not removable:
            return []
        name = self.random.choice(removable)
        topic_id = self.known.topics.pop(name)
        del self.known.partitions[name]
        self.known.configs = [each for each in self.known.configs if each[:2] != (2, name)]
        return [kinds.RemoveTopicRecord(topic_id=topic_id)]

    def change_partition(self) -> list[Message]:
        if not self.known.topics:
            return self.create_topic()
        name = self.random.choice(sorted(self.known.topics))
        index = self.random.randrange(len(self.known.partitions[name]))
        replicas, random = self.known.partitions[name][index], self.random
        record = kinds.PartitionChangeRecord(partition_id=index, topic_id=self.known.topics[name])
        if random.random() < 0.2:
            replicas = self.known.partitions[name][index] = random.sample(BROKERS, 3)
            record.replicas = replicas
            if self.known.level >= DIRECTORIES_SINCE:
                record.directories = [self.directory(replica) for replica in replicas]
        elif self.known.level >= DIRECTORIES_SINCE and random.random() < 0.2:
            record.directories = [self.directory(replica) for replica in replicas]
        isr = replicas[: random.randrange(0, 4)]
        if random.random() < 0.5:
            record.isr = isr
        if random.random() < 0.5:
            record.leader = random.choice((*replicas, -1))
        if random.random() < 0.2:
            record.leader_recovery_state = random.choice((0, 1))
        if random.random() < 0.2:
            record.removing_replicas, record.adding_replicas = random.choice(([], replicas[:1])), replicas[1:2]
        if self.known.level >= ELR_SINCE and random.random() < 0.4:
            record.eligible_leader_replicas = replicas[random.randrange(0, 3) :]
            record.last_known_elr = random.choice((None, [], replicas[:1]))
        return [record]

    def clear_elr(self) -> list[Message]:
        return [kinds.ClearElrRecord(topic_name=self.random.choice(("", *sorted(self.known.topics))))]

    def configure(self) -> list[Message]:
        if self.known.configs and self.random.random() < 0.3:
            type_, name, key = self.random.choice(self.known.configs)
            self.known.configs.remove((type_, name, key))
            return [kinds.ConfigRecord(resource_type=type_, resource_name=name, name=key, value=None)]
        resources = [(4, ""), (4, "1"), (16, "subscription"), (32, "group"), *((2, name) for name in self.known.topics)]
        type_, name = self.random.choice(resources)
        key = self.random.choice(("min.insync.replicas", "retention.ms", "custom.key"))
        if (type_, name, key) not in self.known.configs:
            self.known.configs.append((type_, name, key))
        value = str(self.random.randrange(1, 4))
        self.known.configured.add(name)
        return [kinds.ConfigRecord(resource_type=type_, resource_name=name, name=key, value=value)]

    def limit(self) -> list[Message]:
        entities = (
            (("user", "alice"),),
            (("user", None),),
            (("client-id", "c"), ("user", "alice")),
            (("user", "bob"), ("client-id", None)),
            (("ip", "192.0.2.1"),),
        )
        key = self.random.choice(("producer_byte_rate", "consumer_byte_rate"))
        entity, remove = self.random.choice(entities), self.random.random() < 0.3
        if remove:
            if not self.known.quotas:
                return []
            entity, key = self.random.choice(self.known.quotas)
            self.known.quotas.remove((entity, key))
        elif (entity, key) not in self.known.quotas:
            self.known.quotas.append((entity, key))
        parts = [kinds.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        value = 0.0 if remove else float(self.random.randrange(1, 100))
        return [kinds.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)]

    def produce(self) -> list[Message]:
        self.known.next_producer_id += 1000
        return [
            kinds.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=self.known.next_producer_id),
        ]

    def grant(self) -> list[Message]:
        id_ = random_uuid(self.random)
        self.known.acls.append(id_)
        return [
            kinds.AccessControlEntryRecord(
                id=id_,
                resource_type=self.random.randrange(2, 8),
                resource_name=self.random.choice(("*", "orders")),
                pattern_type=self.random.choice((3, 4)),
                principal=f"User:{self.random.randrange(100)}",
                host="*",
                operation=self.random.randrange(2, 16),
                permission_type=self.random.choice((2, 3)),
            )
        ]

    def revoke(self) -> list[Message]:
        id_ = self.random.choice(self.known.acls)
        self.known.acls.remove(id_)
        return [kinds.RemoveAccessControlEntryRecord(id=id_)]

    def credential(self) -> list[Message]:
        key = (self.random.choice(("alice", "bob", "carol")), self.random.choice((1, 2)))
        if key not in self.known.scram:
            self.known.scram.append(key)
        return [
            kinds.UserScramCredentialRecord(
                name=key[0],
                mechanism=key[1],
                salt=b"salt",
                stored_key=self.random.randbytes(8),
                server_key=self.random.randbytes(8),
                iterations=4096,
            )
        ]

    def forget_credential(self) -> list[Message]:
        if not self.known.scram:
            return []
        name, mechanism = self.known.scram.pop(self.random.randrange(len(self.known.scram)))
        return [kinds.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]

    def token(self) -> list[Message]:
        token_id = f"token-{self.random.randrange(9)}"
        if token_id not in self.known.tokens:
            self.known.tokens.append(token_id)
        return [
            kinds.DelegationTokenRecord(
                owner="User:alice",
                requester="User:bob",
                renewers=["User:carol"][: self.random.randrange(2)],
                issue_timestamp=1,
                max_timestamp=1000,
                expiration_timestamp=self.random.randrange(1000),
                token_id=token_id,
            )
        ]

    def forget_token(self) -> list[Message]:
        if not self.known.tokens:
            return []
        return [kinds.RemoveDelegationTokenRecord(token_id=self.known.tokens.pop())]
