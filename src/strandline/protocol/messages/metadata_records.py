"""Records of the metadata log. `api_key` is the record type; `metadata_codec` adds the frame."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    boolean,
    bytes_,
    f64,
    i8,
    i16,
    i32,
    i64,
    since,
    string,
    tag,
    u16,
    uuid,
)


class RegisterBrokerRecord(Message, api_key=0, versions=(0, 4), flexible=0):
    """A broker's registration; it replaces an earlier one. v1 controlled shutdown, v2 ZooKeeper migration, v3 log
    directories (KIP-858), v4 cordoned directories (KIP-1066)."""

    broker_id: i32 = 0
    is_migrating_zk_broker: Annotated[boolean, since(2)] = False
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: i64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: string | None = ""
    fenced: boolean = True
    in_controlled_shutdown: Annotated[boolean, since(1)] = False
    log_dirs: Annotated[list[uuid], since(3), tag(0)] = []
    cordoned_log_dirs: Annotated[list[uuid] | None, since(4), tag(1)] = None


class BrokerEndpoint(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0
    security_protocol: i16 = 0  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class BrokerFeature(Struct):
    name: string = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


class UnregisterBrokerRecord(Message, api_key=1, versions=(0, 0), flexible=0):
    broker_id: i32 = 0
    broker_epoch: i64 = 0


class TopicRecord(Message, api_key=2, versions=(0, 0), flexible=0):
    name: string = ""
    topic_id: uuid = ZERO_UUID


class PartitionRecord(Message, api_key=3, versions=(0, 2), flexible=0):
    """A partition as a whole. v1 directories (KIP-858), v2 eligible leader replicas (KIP-966)."""

    partition_id: i32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[i32] = []
    isr: list[i32] = []
    removing_replicas: list[i32] = []
    adding_replicas: list[i32] = []
    leader: i32 = -1
    leader_recovery_state: Annotated[i8, tag(0)] = 0  # 0 recovered, 1 recovering
    leader_epoch: i32 = -1
    partition_epoch: i32 = -1
    directories: Annotated[list[uuid], since(1)] = []
    eligible_leader_replicas: Annotated[list[i32] | None, since(2), tag(1)] = None
    last_known_elr: Annotated[list[i32] | None, since(2), tag(2)] = None


class ConfigRecord(Message, api_key=4, versions=(0, 0), flexible=0):
    """One key of one resource; a null value removes it."""

    resource_type: i8 = 0  # 2 topic, 4 broker, 16 client metrics, 32 group
    resource_name: string = ""
    name: string = ""
    value: string | None = ""


class PartitionChangeRecord(Message, api_key=5, versions=(0, 2), flexible=0):
    """A change to a partition; absent fields are unchanged. v1 directories, v2 eligible leader replicas."""

    partition_id: i32 = -1
    topic_id: uuid = ZERO_UUID
    isr: Annotated[list[i32] | None, tag(0)] = None
    leader: Annotated[i32, tag(1)] = -2  # -2 unchanged, -1 none
    replicas: Annotated[list[i32] | None, tag(2)] = None
    removing_replicas: Annotated[list[i32] | None, tag(3)] = None
    adding_replicas: Annotated[list[i32] | None, tag(4)] = None
    leader_recovery_state: Annotated[i8, tag(5)] = -1  # -1 unchanged
    directories: Annotated[list[uuid] | None, since(1), tag(8)] = None
    eligible_leader_replicas: Annotated[list[i32] | None, since(2), tag(6)] = None
    last_known_elr: Annotated[list[i32] | None, since(2), tag(7)] = None


class FenceBrokerRecord(Message, api_key=7, versions=(0, 0), flexible=0):
    """Superseded by BrokerRegistrationChangeRecord, still replayed."""

    id: i32 = 0
    epoch: i64 = 0


class UnfenceBrokerRecord(Message, api_key=8, versions=(0, 0), flexible=0):
    """Superseded by BrokerRegistrationChangeRecord, still replayed."""

    id: i32 = 0
    epoch: i64 = 0


class RemoveTopicRecord(Message, api_key=9, versions=(0, 0), flexible=0):
    """Removes a topic, its partitions and its configs."""

    topic_id: uuid = ZERO_UUID


class DelegationTokenRecord(Message, api_key=10, versions=(0, 0), flexible=0):
    """A token without its secret, which is derived from the id."""

    owner: string = ""
    requester: string = ""
    renewers: list[string] = []
    issue_timestamp: i64 = 0
    max_timestamp: i64 = 0
    expiration_timestamp: i64 = 0
    token_id: string = ""


class UserScramCredentialRecord(Message, api_key=11, versions=(0, 0), flexible=0):
    name: string = ""
    mechanism: i8 = 0  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    salt: bytes_ = b""
    stored_key: bytes_ = b""
    server_key: bytes_ = b""
    iterations: i32 = 0


class FeatureLevelRecord(Message, api_key=12, versions=(0, 0), flexible=0):
    """A finalized feature; level 0 removes it."""

    name: string = ""
    feature_level: i16 = 0


class ClientQuotaRecord(Message, api_key=14, versions=(0, 0), flexible=0):
    entity: list[EntityData] = []
    key: string = ""
    value: f64 = 0.0
    remove: boolean = False


class EntityData(Struct):
    entity_type: string = ""
    entity_name: string | None = ""


class ProducerIdsRecord(Message, api_key=15, versions=(0, 0), flexible=0):
    """The first producer id of the next block."""

    broker_id: i32 = 0
    broker_epoch: i64 = -1
    next_producer_id: i64 = 0


class BrokerRegistrationChangeRecord(Message, api_key=17, versions=(0, 3), flexible=0):
    """Fencing and shutdown of a registered broker. v1 controlled shutdown, v2 directories (KIP-858), v3 cordoned
    ones (KIP-1066)."""

    broker_id: i32 = 0
    broker_epoch: i64 = 0
    fenced: Annotated[i8, tag(0)] = 0  # 1 fence, -1 unfence, 0 unchanged
    in_controlled_shutdown: Annotated[i8, since(1), tag(1)] = 0  # 1 starts, 0 unchanged
    log_dirs: Annotated[list[uuid], since(2), tag(2)] = []
    cordoned_log_dirs: Annotated[list[uuid] | None, since(3), tag(3)] = None


class AccessControlEntryRecord(Message, api_key=18, versions=(0, 0), flexible=0):
    id: uuid = ZERO_UUID
    resource_type: i8 = 0
    resource_name: string = ""
    pattern_type: i8 = 0
    principal: string = ""
    host: string = ""
    operation: i8 = 0
    permission_type: i8 = 0


class RemoveAccessControlEntryRecord(Message, api_key=19, versions=(0, 0), flexible=0):
    id: uuid = ZERO_UUID


class NoOpRecord(Message, api_key=20, versions=(0, 0), flexible=0):
    """No change; it shows that the active controller is alive."""


class ZkMigrationStateRecord(Message, api_key=21, versions=(0, 0), flexible=0):
    """The state of a migration from ZooKeeper; kept for replaying old logs."""

    zk_migration_state: i8 = 0


class RemoveUserScramCredentialRecord(Message, api_key=22, versions=(0, 0), flexible=0):
    name: string = ""
    mechanism: i8 = 0


class BeginTransactionRecord(Message, api_key=23, versions=(0, 0), flexible=0):
    """The records up to EndTransactionRecord take effect together (KIP-868)."""

    name: Annotated[string | None, tag(0)] = None


class EndTransactionRecord(Message, api_key=24, versions=(0, 0), flexible=0):
    """The records since BeginTransactionRecord take effect."""


class AbortTransactionRecord(Message, api_key=25, versions=(0, 0), flexible=0):
    """The records since BeginTransactionRecord are discarded."""

    reason: Annotated[string | None, tag(0)] = None


class RemoveDelegationTokenRecord(Message, api_key=26, versions=(0, 0), flexible=0):
    token_id: string = ""


class RegisterControllerRecord(Message, api_key=27, versions=(0, 0), flexible=0):
    controller_id: i32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: boolean = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ControllerEndpoint(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0
    security_protocol: i16 = 0


class ControllerFeature(Struct):
    name: string = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


class ClearElrRecord(Message, api_key=28, versions=(0, 0), flexible=0):
    """Removes the eligible leader replicas of one topic or, with null, of all topics (KIP-966)."""

    topic_name: string = ""
