"""From brokers to the controller: AlterPartition (56), Envelope (58), BrokerRegistration (62), BrokerHeartbeat (63),
ControllerRegistration (70), AssignReplicasToDirs (73)."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    boolean,
    bytes_,
    i8,
    i16,
    i32,
    i64,
    ignorable,
    since,
    string,
    tag,
    u16,
    until,
    uuid,
)


class BrokerRegistrationRequest(Message, api_key=62, versions=(0, 4), flexible=0):
    """v1 migrating from ZooKeeper, v2 log directories (KIP-858), v3 the epoch of a clean shutdown (KIP-966), v4 can
    read features whose minimum is 0."""

    broker_id: i32 = 0
    cluster_id: string = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: string | None = ""
    is_migrating_zk_broker: Annotated[boolean, since(1)] = False
    log_dirs: Annotated[list[uuid], since(2), ignorable] = []
    previous_broker_epoch: Annotated[i64, since(3), ignorable] = -1


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0
    security_protocol: i16 = 0  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class Feature(Struct):
    name: string = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


class BrokerRegistrationResponse(Message, api_key=62, versions=(0, 4), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    broker_epoch: i64 = -1


class BrokerHeartbeatRequest(Message, api_key=63, versions=(0, 2), flexible=0):
    """v1 offline directories (KIP-858), v2 cordoned directories (KIP-1066)."""

    broker_id: i32 = 0
    broker_epoch: i64 = -1
    current_metadata_offset: i64 = 0
    want_fence: boolean = False
    want_shut_down: boolean = False
    offline_log_dirs: Annotated[list[uuid], since(1), tag(0)] = []
    cordoned_log_dirs: Annotated[list[uuid] | None, since(2), tag(1)] = None


class BrokerHeartbeatResponse(Message, api_key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    is_caught_up: boolean = False
    is_fenced: boolean = True
    should_shut_down: boolean = False


class AlterPartitionRequest(Message, api_key=56, versions=(2, 3), flexible=0):
    """A leader proposes an ISR. v2 topic ids (KIP-841), v3 with the epochs of the replicas' brokers (KIP-903)."""

    broker_id: i32 = 0
    broker_epoch: i64 = -1
    topics: list[AlterPartitionRequestTopicData] = []


class AlterPartitionRequestTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterPartitionRequestPartitionData] = []


class AlterPartitionRequestPartitionData(Struct):
    partition_index: i32 = 0
    leader_epoch: i32 = 0
    new_isr: Annotated[list[i32], until(2)] = []
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = []
    leader_recovery_state: i8 = 0
    partition_epoch: i32 = 0


class BrokerState(Struct):
    broker_id: i32 = 0
    broker_epoch: i64 = -1


class AlterPartitionResponse(Message, api_key=56, versions=(2, 3), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[AlterPartitionResponseTopicData] = []


class AlterPartitionResponseTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterPartitionResponsePartitionData] = []


class AlterPartitionResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    isr: list[i32] = []
    leader_recovery_state: i8 = 0
    partition_epoch: i32 = 0


class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible=0):
    """Reports in which log directory a replica is (KIP-858)."""

    broker_id: i32 = 0
    broker_epoch: i64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = []


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsRequestTopicData] = []


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsRequestPartitionData] = []


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: i32 = 0


class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = []


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsResponseTopicData] = []


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = []


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0


class ControllerRegistrationRequest(Message, api_key=70, versions=(0, 0), flexible=0):
    """The endpoints and features of a controller (KIP-919)."""

    controller_id: i32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: boolean = False
    listeners: list[Listener] = []
    features: list[Feature] = []


class ControllerRegistrationResponse(Message, api_key=70, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""


class EnvelopeRequest(Message, api_key=58, versions=(0, 0), flexible=0):
    """A client's request, including its header, that a broker forwards to the controller (KIP-590)."""

    request_data: bytes_ = b""
    request_principal: bytes_ | None = b""
    client_host_address: bytes_ = b""


class EnvelopeResponse(Message, api_key=58, versions=(0, 0), flexible=0):
    """The response to the forwarded request, including its header."""

    response_data: bytes_ | None = None
    error_code: i16 = 0
