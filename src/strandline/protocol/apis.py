"""One row per API of Kafka 4.3: key, versions, listeners, whether brokers forward it, and why it is not served.

`handlers/tables` has a second row for every API that is served; its docstring tells how to add one.
`docs/SUPPORTED.md` is generated from this table (`python -m strandline.protocol.supported`). Message classes are
imported on first use, so that an API without requests costs nothing.

Keys 4 to 7 (LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown) were removed with ZooKeeper and are absent.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import cached_property
from importlib import import_module
from typing import Final

import msgspec

from strandline.protocol.types import Message


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Listener(Enum):
    BROKER = "broker"
    CONTROLLER = "controller"
    BOTH = "broker, controller"


class Api(msgspec.Struct, frozen=True, dict=True):
    """One row. Its `__dict__` caches the message classes."""

    key: ApiKey
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int | None
    broker: bool
    controller: bool
    forwarded: bool
    """Brokers forward it to the active controller (KIP-590), unless `handlers/tables` has a broker handler."""
    not_served: str | None
    """Why it is not served; None when it is."""
    advertised_min_version: int
    """What ApiVersions advertises may differ from the versions that are read."""
    advertised_max_version: int

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    def _message(self, suffix: str) -> type[Message]:
        found: type[Message] = getattr(import_module(f"strandline.protocol.messages.{self.module}"), self.name + suffix)
        return found

    @property
    def is_served(self) -> bool:
        return self.not_served is None

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions keeps header version 0: a client reads its response before it knows the supported versions."""
        flexible_from = self.flexible_from
        return 0 if flexible_from is None or version < flexible_from or self.key is ApiKey.API_VERSIONS else 1


BROKER, CONTROLLER, BOTH = Listener.BROKER, Listener.CONTROLLER, Listener.BOTH

SECURITY: Final = "comes with security"
DIRECTORIES: Final = "comes with moving replicas between log directories"
TELEMETRY: Final = "needs a telemetry receiver, which does not exist"
SHARE: Final = "comes with share groups"
STREAMS: Final = "comes with streams groups"


def _api(
    key: int,
    name: str,
    module: str,
    versions: tuple[int, int],
    flexible_from: int | None,
    listener: Listener,
    *,
    forwarded: bool = False,
    not_served: str | None = None,
    advertised_from: int | None = None,
    stable_version: int | None = None,
) -> Api:
    return Api(
        key=ApiKey(key),
        name=name,
        module=module,
        min_version=versions[0],
        max_version=versions[1],
        flexible_from=flexible_from,
        broker=listener is not CONTROLLER,
        controller=listener is not BROKER,
        forwarded=forwarded,
        not_served=not_served,
        advertised_min_version=versions[0] if advertised_from is None else advertised_from,
        advertised_max_version=versions[1] if stable_version is None else stable_version,
    )


_TABLE: Final = (
    # librdkafka derives features from old Produce versions (KAFKA-18659): 0 is advertised, though 0-2 are rejected.
    _api(0, "Produce", "produce", (3, 13), 9, BROKER, advertised_from=0),
    _api(1, "Fetch", "fetch", (4, 18), 12, BOTH),
    _api(2, "ListOffsets", "list_offsets", (1, 11), 6, BROKER),
    _api(3, "Metadata", "metadata", (0, 13), 9, BROKER),
    _api(8, "OffsetCommit", "offsets", (2, 10), 8, BROKER),
    _api(9, "OffsetFetch", "offsets", (1, 10), 6, BROKER),
    _api(10, "FindCoordinator", "coordinators", (0, 6), 3, BROKER),
    _api(11, "JoinGroup", "groups", (0, 9), 6, BROKER),
    _api(12, "Heartbeat", "groups", (0, 4), 4, BROKER),
    _api(13, "LeaveGroup", "groups", (0, 5), 4, BROKER),
    _api(14, "SyncGroup", "groups", (0, 5), 4, BROKER),
    _api(15, "DescribeGroups", "groups", (0, 6), 5, BROKER),
    _api(16, "ListGroups", "groups", (0, 5), 3, BROKER),
    _api(17, "SaslHandshake", "sasl", (0, 1), None, BOTH, not_served=SECURITY),
    _api(18, "ApiVersions", "api_versions", (0, 4), 3, BOTH),
    _api(19, "CreateTopics", "topics", (2, 7), 5, BOTH, forwarded=True),
    _api(20, "DeleteTopics", "topics", (1, 6), 4, BOTH, forwarded=True),
    _api(21, "DeleteRecords", "topics", (0, 2), 2, BROKER),
    # Kafka still marks version 6 (two-phase commit, KIP-939) as unstable.
    _api(22, "InitProducerId", "producers", (0, 6), 2, BROKER, stable_version=5),
    _api(23, "OffsetForLeaderEpoch", "epochs", (2, 4), 4, BROKER),
    _api(24, "AddPartitionsToTxn", "transactions", (0, 5), 3, BROKER),
    _api(25, "AddOffsetsToTxn", "transactions", (0, 4), 3, BROKER),
    _api(26, "EndTxn", "transactions", (0, 5), 3, BROKER),
    _api(27, "WriteTxnMarkers", "transactions", (1, 2), 1, BROKER),
    _api(28, "TxnOffsetCommit", "transactions", (0, 5), 3, BROKER),
    _api(29, "DescribeAcls", "acls", (1, 3), 2, BOTH),
    _api(30, "CreateAcls", "acls", (1, 3), 2, BOTH, forwarded=True),
    _api(31, "DeleteAcls", "acls", (1, 3), 2, BOTH, forwarded=True),
    _api(32, "DescribeConfigs", "configs", (1, 4), 4, BOTH),
    _api(33, "AlterConfigs", "configs", (0, 2), 2, BOTH, forwarded=True),
    _api(34, "AlterReplicaLogDirs", "log_dirs", (1, 2), 2, BROKER, not_served=DIRECTORIES),
    _api(35, "DescribeLogDirs", "log_dirs", (1, 5), 2, BROKER),
    _api(36, "SaslAuthenticate", "sasl", (0, 2), 2, BOTH, not_served=SECURITY),
    _api(37, "CreatePartitions", "topics", (0, 3), 2, BOTH, forwarded=True),
    _api(38, "CreateDelegationToken", "tokens", (1, 3), 2, BOTH, forwarded=True),
    _api(39, "RenewDelegationToken", "tokens", (1, 2), 2, BOTH, forwarded=True),
    _api(40, "ExpireDelegationToken", "tokens", (1, 2), 2, BOTH, forwarded=True),
    _api(41, "DescribeDelegationToken", "tokens", (1, 3), 2, BOTH),
    _api(42, "DeleteGroups", "groups", (0, 2), 2, BROKER),
    _api(43, "ElectLeaders", "elections", (0, 2), 2, BOTH, forwarded=True),
    _api(44, "IncrementalAlterConfigs", "configs", (0, 1), 1, BOTH, forwarded=True),
    _api(45, "AlterPartitionReassignments", "reassignments", (0, 1), 0, BOTH, forwarded=True),
    _api(46, "ListPartitionReassignments", "reassignments", (0, 0), 0, BOTH, forwarded=True),
    _api(47, "OffsetDelete", "offsets", (0, 0), None, BROKER),
    _api(48, "DescribeClientQuotas", "quotas", (0, 1), 1, BROKER),
    _api(49, "AlterClientQuotas", "quotas", (0, 1), 1, BOTH, forwarded=True),
    _api(50, "DescribeUserScramCredentials", "scram", (0, 0), 0, BOTH),
    _api(51, "AlterUserScramCredentials", "scram", (0, 0), 0, BOTH, forwarded=True),
    _api(52, "Vote", "quorum", (0, 2), 0, CONTROLLER),
    _api(53, "BeginQuorumEpoch", "quorum", (0, 1), 1, CONTROLLER),
    _api(54, "EndQuorumEpoch", "quorum", (0, 1), 1, CONTROLLER),
    _api(55, "DescribeQuorum", "quorum", (0, 2), 0, BOTH, forwarded=True),
    _api(56, "AlterPartition", "brokers", (2, 3), 0, CONTROLLER),
    _api(57, "UpdateFeatures", "cluster", (0, 2), 0, BOTH, forwarded=True),
    _api(58, "Envelope", "brokers", (0, 0), 0, CONTROLLER),
    _api(59, "FetchSnapshot", "quorum", (0, 1), 0, CONTROLLER),
    _api(60, "DescribeCluster", "cluster", (0, 2), 0, BOTH),
    _api(61, "DescribeProducers", "producers", (0, 0), 0, BROKER),
    _api(62, "BrokerRegistration", "brokers", (0, 4), 0, CONTROLLER),
    _api(63, "BrokerHeartbeat", "brokers", (0, 2), 0, CONTROLLER),
    _api(64, "UnregisterBroker", "cluster", (0, 0), 0, BOTH, forwarded=True),
    _api(65, "DescribeTransactions", "transactions", (0, 0), 0, BROKER),
    _api(66, "ListTransactions", "transactions", (0, 2), 0, BROKER, stable_version=1),
    _api(67, "AllocateProducerIds", "producers", (0, 0), 0, CONTROLLER),
    _api(68, "ConsumerGroupHeartbeat", "consumer_groups", (0, 1), 0, BROKER),
    _api(69, "ConsumerGroupDescribe", "consumer_groups", (0, 1), 0, BROKER),
    _api(70, "ControllerRegistration", "brokers", (0, 0), 0, CONTROLLER),
    _api(71, "GetTelemetrySubscriptions", "telemetry", (0, 0), 0, BROKER, not_served=TELEMETRY),
    _api(72, "PushTelemetry", "telemetry", (0, 0), 0, BROKER, not_served=TELEMETRY),
    _api(73, "AssignReplicasToDirs", "brokers", (0, 0), 0, CONTROLLER),
    _api(74, "ListConfigResources", "configs", (0, 1), 0, BROKER),
    _api(75, "DescribeTopicPartitions", "topics", (0, 0), 0, BROKER),
    _api(76, "ShareGroupHeartbeat", "share", (1, 1), 0, BROKER, not_served=SHARE),
    _api(77, "ShareGroupDescribe", "share", (1, 1), 0, BROKER, not_served=SHARE),
    _api(78, "ShareFetch", "share", (1, 2), 0, BROKER, not_served=SHARE),
    _api(79, "ShareAcknowledge", "share", (1, 2), 0, BROKER, not_served=SHARE),
    _api(80, "AddRaftVoter", "quorum", (0, 1), 0, BOTH, forwarded=True),
    _api(81, "RemoveRaftVoter", "quorum", (0, 0), 0, BOTH, forwarded=True),
    _api(82, "UpdateRaftVoter", "quorum", (0, 0), 0, CONTROLLER),
    _api(83, "InitializeShareGroupState", "share_state", (0, 0), 0, BROKER, not_served=SHARE),
    _api(84, "ReadShareGroupState", "share_state", (0, 0), 0, BROKER, not_served=SHARE),
    _api(85, "WriteShareGroupState", "share_state", (0, 1), 0, BROKER, not_served=SHARE),
    _api(86, "DeleteShareGroupState", "share_state", (0, 0), 0, BROKER, not_served=SHARE),
    _api(87, "ReadShareGroupStateSummary", "share_state", (0, 1), 0, BROKER, not_served=SHARE),
    _api(88, "StreamsGroupHeartbeat", "streams", (0, 0), 0, BROKER, not_served=STREAMS),
    _api(89, "StreamsGroupDescribe", "streams", (0, 0), 0, BROKER, not_served=STREAMS),
    _api(90, "DescribeShareGroupOffsets", "share", (0, 1), 0, BROKER, not_served=SHARE),
    _api(91, "AlterShareGroupOffsets", "share", (0, 0), 0, BROKER, not_served=SHARE),
    _api(92, "DeleteShareGroupOffsets", "share", (0, 0), 0, BROKER, not_served=SHARE),
)

API: Final[dict[int, Api]] = {int(api.key): api for api in _TABLE}


# Differences from Kafka in APIs that are served: (where, what). Printed in docs/SUPPORTED.md.
LIMITATIONS: Final[tuple[tuple[str, str], ...]] = (
    (
        "Keys 4 to 7",
        "LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown: Kafka 4 removed them with ZooKeeper.",
    ),
    (
        "Produce 0-2",
        "advertised, since librdkafka derives features from the range (KAFKA-18659), but rejected as in Kafka 4.",
    ),
    ("InitProducerId 6", "accepted, but not advertised: Kafka marks it unstable (two-phase commit, KIP-939)."),
    ("ListTransactions 2", "not advertised: filters by a pattern, which needs a regular expression engine like RE2."),
    ("Strings that are not UTF-8", "rejected by closing the connection; Kafka replaces the invalid bytes."),
    ("A tagged field given twice", "rejected by closing the connection; Kafka uses the last one."),
    (
        "Validation of records at produce",
        "a batch that is stored unchanged (the producer's codec is kept, the topic is not compacted, the timestamps of "
        "its header are within bounds) is not validated record by record. Not checked are: that the records fill the "
        "batch and match its record count (checked for small uncompressed batches), the timestamp of each record (the "
        "header's first and largest are checked), the header's largest timestamp against the records, offset deltas, "
        "and that compressed records can be decompressed. All of this is checked on compacted topics and when "
        "`compression.type` recompresses.",
    ),
    (
        "Size of decompressed batches",
        "a batch that must be decompressed and exceeds 64 MiB (or 4 times max.message.bytes), or has more than 500,000 "
        "records, is rejected with MESSAGE_TOO_LARGE, so that clients split it; Kafka has no limit.",
    ),
    ("Unknown compression codecs", "return UNSUPPORTED_COMPRESSION_TYPE; Kafka returns UNKNOWN_SERVER_ERROR."),
    (
        "Transactions",
        "FindCoordinator returns COORDINATOR_NOT_AVAILABLE for transactional ids, transactional records are rejected "
        "with INVALID_TXN_STATE; the other APIs are not advertised.",
    ),
    (
        "Groups",
        "of the classic protocol only. The replication factor of an internal topic is obeyed where it is configured; "
        "otherwise it is fitted to the registered brokers, and FindCoordinator succeeds on a single node.",
    ),
    (
        "Limits that Kafka leaves infinite",
        "are finite: 10,000 connections, 5,000 from one address, 512 MiB of queued requests, 10 pipelined requests per "
        "connection, 30 s for a frame to arrive, 250,000 elements in the lists of a request, 10,000 topics or "
        "resources in a request to the controller, 1,000 protocols of a group member, 300,000 partitions in fetch "
        "sessions (above that a fetch gets no session).",
    ),
    (
        "Auto-created topics",
        "are reported as unknown by the Metadata response that creates them, and described by the next, as in Kafka. "
        "They exist before that first response, unless the controller does not respond within a second.",
    ),
    (
        "Broker loggers",
        "(config resources of type BROKER_LOGGER) are Python's, so their names differ from Kafka's, except `root`; the "
        "controller listener describes them but does not alter them.",
    ),
    (
        "A resource named twice",
        "in one DescribeConfigs or DescribeProducers request is described once; Kafka describes it each time.",
    ),
    (
        "Invalid requests to which Kafka returns UNKNOWN_SERVER_ERROR",
        "or no response get a specific error. Every response that differs from Kafka's is listed with the reason "
        "(`differs:` in tests/cluster/handlers/responses).",
    ),
    (
        "Metrics",
        "are served over HTTP by every listener (`GET /metrics`, in Prometheus' format; disabled with "
        "`strandline.metrics.page.enable=false`) instead of JMX.",
    ),
    ("num.network.threads", "accepted and ignored: one event loop serves all connections."),
    (
        "Security",
        "only PLAINTEXT listeners; a config with an authorizer, TLS or SASL is rejected by name. ACL requests return "
        "SECURITY_DISABLED and delegation tokens are rejected, as by Kafka with the same config; SCRAM credentials are "
        "stored, but not used for authentication yet.",
    ),
    ("Client quotas", "are stored and described; no client is throttled yet."),
    (
        "Configs",
        "every broker and topic config key of Kafka 4.3 is validated and described; those of consumer, share and "
        "streams groups, transactions, replication throttles, `num.replica.fetchers` (there is one fetcher per "
        "leader), `replica.selector.class`, quotas, security, remote storage and metrics reporters have no effect yet.",
    ),
    (
        "Static voters",
        "(`controller.quorum.voters`): a voter whose disk was erased and formatted again under the same id has lost "
        "its votes and its log without the quorum detecting it, as in Kafka. Dynamic voters (`kraft.version` 1, what "
        "`up` creates) are identified by their directory ids as well.",
    ),
    (
        "A full log directory",
        "rejects writes and keeps serving reads until it has free space again; Kafka takes it offline.",
    ),
    ("Remote storage", "is not supported: `remote.storage.enable=true` is rejected."),
)
