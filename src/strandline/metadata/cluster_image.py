"""Registered brokers and controllers, finalized feature levels, producer id blocks.

A part of `metadata.image`, which calls `replay_*` for each record in log order and `*_records` for a snapshot.
Invariant: a broker is changed only by records with its current epoch; Kafka writes no others.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from strandline.metadata.values import BrokerEndpoint, BrokerInfo, ControllerInfo
from strandline.model.errors import NodeFault
from strandline.model.timeline import Timeline, TimelineMap
from strandline.protocol.messages.metadata_records import (
    BrokerEndpoint as BrokerEndpointData,
)
from strandline.protocol.messages.metadata_records import (
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from strandline.protocol.types import Message

METADATA_VERSION = "metadata.version"
NEXT_PRODUCER_ID = "next producer id"
ZK_MIGRATION_STATE = "zk migration state"


class ClusterImage:
    def __init__(self, timeline: Timeline) -> None:
        self.brokers: TimelineMap[int, BrokerInfo] = TimelineMap(timeline)
        self.controllers: TimelineMap[int, ControllerInfo] = TimelineMap(timeline)
        self.features: TimelineMap[str, int] = TimelineMap(timeline)
        self.counters: TimelineMap[str, int] = TimelineMap(timeline)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self.brokers[record.broker_id] = BrokerInfo(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            tuple(BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            None if cordoned is None else tuple(cordoned),
            record.is_migrating_zk_broker,
        )

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=False)

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise NodeFault(f"the change of broker {broker.id}'s registration has undefined values: {record}")
        if record.fenced:
            broker = replace(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_directories=tuple(record.cordoned_log_dirs))
        self.brokers[record.broker_id] = broker

    def _broker(self, broker_id: int, epoch: int) -> BrokerInfo:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise NodeFault(f"a metadata record names broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise NodeFault(f"a metadata record names broker {broker_id} at epoch {epoch}, not {broker.epoch}")
        return broker

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerInfo(
            record.controller_id,
            record.incarnation_id,
            tuple(BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            record.zk_migration_ready,
        )

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        elif record.name in self.features:
            del self.features[record.name]

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.counters[NEXT_PRODUCER_ID] = record.next_producer_id

    def replay_zk_migration_state(self, record: ZkMigrationStateRecord) -> None:
        self.counters[ZK_MIGRATION_STATE] = record.zk_migration_state

    def feature_records(self, moment: int) -> Iterator[Message]:
        """metadata.version comes first: it determines how the records after it are read."""
        levels = dict(self.features.items(moment))
        for name in sorted(levels, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=levels[name])
        state = self.counters.get(ZK_MIGRATION_STATE, moment)
        if state is not None:
            yield ZkMigrationStateRecord(zk_migration_state=state)

    def member_records(self, moment: int) -> Iterator[Message]:
        for _, broker in sorted(self.brokers.items(moment)):
            yield register_broker_record(broker)
        for _, controller in sorted(self.controllers.items(moment)):
            yield _register_controller_record(controller)

    def producer_id_records(self, moment: int) -> Iterator[Message]:
        next_producer_id = self.counters.get(NEXT_PRODUCER_ID, moment)
        if next_producer_id is not None:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_producer_id)


def register_broker_record(broker: BrokerInfo) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_directories
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpointData(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _register_controller_record(controller: ControllerInfo) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in controller.features
        ],
    )
