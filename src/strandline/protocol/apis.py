"""Every API of Kafka 4.3: its key, versions, who serves it, and whether we do yet.

`server/dispatch` looks requests up here, `handlers/api_versions` advertises from here, `docs/SUPPORTED.md` is printed
from here (`python -m strandline.protocol.supported`). Message classes are imported on first use: a broker that is
never asked about share groups never pays for them.

Keys 4 to 7 (LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown) went away with ZooKeeper and are absent.
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
    """One row. It has a dictionary, where the message classes are remembered once they have been asked for."""

    key: ApiKey
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int | None
    broker: bool
    controller: bool
    # Brokers hand it to the active controller (KIP-590).
    forwarded: bool
    not_served: str | None
    """Why it is not served; None when it is."""
    # What we tell clients, where that differs from what we read.
    advertised_min_version: int
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
        """ApiVersions keeps the old header: a client reads the answer before it knows what we speak."""
        flexible_from = self.flexible_from
        return 0 if flexible_from is None or version < flexible_from or self.key is ApiKey.API_VERSIONS else 1


BROKER, CONTROLLER, BOTH = Listener.BROKER, Listener.CONTROLLER, Listener.BOTH

GROUPS: Final = "comes with group coordinators"
TRANSACTIONS: Final = "comes with transactions"
SECURITY: Final = "comes with security"
DIRECTORIES: Final = "comes with moving replicas between log directories"
TELEMETRY: Final = "only useful with a telemetry receiver, and we have none"
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
    # librdkafka derives features from old Produce versions (KAFKA-18659): advertised, though only 3 and up are read.
    _api(0, "Produce", "produce", (3, 13), 9, BROKER, advertised_from=0),
    _api(1, "Fetch", "fetch", (4, 18), 12, BOTH),
    _api(2, "ListOffsets", "list_offsets", (1, 11), 6, BROKER),
    _api(3, "Metadata", "metadata", (0, 13), 9, BROKER),
    _api(8, "OffsetCommit", "offsets", (2, 10), 8, BROKER, not_served=GROUPS),
    _api(9, "OffsetFetch", "offsets", (1, 10), 6, BROKER, not_served=GROUPS),
    _api(10, "FindCoordinator", "coordinators", (0, 6), 3, BROKER),
    _api(11, "JoinGroup", "groups", (0, 9), 6, BROKER, not_served=GROUPS),
    _api(12, "Heartbeat", "groups", (0, 4), 4, BROKER, not_served=GROUPS),
    _api(13, "LeaveGroup", "groups", (0, 5), 4, BROKER, not_served=GROUPS),
    _api(14, "SyncGroup", "groups", (0, 5), 4, BROKER, not_served=GROUPS),
    _api(15, "DescribeGroups", "groups", (0, 6), 5, BROKER, not_served=GROUPS),
    _api(16, "ListGroups", "groups", (0, 5), 3, BROKER, not_served=GROUPS),
    _api(17, "SaslHandshake", "sasl", (0, 1), None, BOTH, not_served=SECURITY),
    _api(18, "ApiVersions", "api_versions", (0, 4), 3, BOTH),
    _api(19, "CreateTopics", "topics", (2, 7), 5, BOTH, forwarded=True),
    _api(20, "DeleteTopics", "topics", (1, 6), 4, BOTH, forwarded=True),
    _api(21, "DeleteRecords", "topics", (0, 2), 2, BROKER),
    # Version 6 (two-phase commit, KIP-939) is still marked unstable by Kafka.
    _api(22, "InitProducerId", "producers", (0, 6), 2, BROKER, stable_version=5),
    _api(23, "OffsetForLeaderEpoch", "epochs", (2, 4), 4, BROKER),
    _api(24, "AddPartitionsToTxn", "transactions", (0, 5), 3, BROKER, not_served=TRANSACTIONS),
    _api(25, "AddOffsetsToTxn", "transactions", (0, 4), 3, BROKER, not_served=TRANSACTIONS),
    _api(26, "EndTxn", "transactions", (0, 5), 3, BROKER, not_served=TRANSACTIONS),
    _api(27, "WriteTxnMarkers", "transactions", (1, 2), 1, BROKER, not_served=TRANSACTIONS),
    _api(28, "TxnOffsetCommit", "transactions", (0, 5), 3, BROKER, not_served=TRANSACTIONS),
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
    _api(42, "DeleteGroups", "groups", (0, 2), 2, BROKER, not_served=GROUPS),
    _api(43, "ElectLeaders", "elections", (0, 2), 2, BOTH, forwarded=True),
    _api(44, "IncrementalAlterConfigs", "configs", (0, 1), 1, BOTH, forwarded=True),
    _api(45, "AlterPartitionReassignments", "reassignments", (0, 1), 0, BOTH, forwarded=True),
    _api(46, "ListPartitionReassignments", "reassignments", (0, 0), 0, BOTH, forwarded=True),
    _api(47, "OffsetDelete", "offsets", (0, 0), None, BROKER, not_served=GROUPS),
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
    _api(65, "DescribeTransactions", "transactions", (0, 0), 0, BROKER, not_served=TRANSACTIONS),
    _api(66, "ListTransactions", "transactions", (0, 2), 0, BROKER, not_served=TRANSACTIONS),
    _api(67, "AllocateProducerIds", "producers", (0, 0), 0, CONTROLLER),
    _api(68, "ConsumerGroupHeartbeat", "consumer_groups", (0, 1), 0, BROKER, not_served=GROUPS),
    _api(69, "ConsumerGroupDescribe", "consumer_groups", (0, 1), 0, BROKER, not_served=GROUPS),
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


# What clients might miss although the API is there: (where, what). Printed in docs/SUPPORTED.md.
LIMITATIONS: Final[tuple[tuple[str, str], ...]] = (
    (
        "Keys 4 to 7",
        "LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown: Kafka 4 dropped them with ZooKeeper.",
    ),
    (
        "Produce 0-2",
        "advertised, since librdkafka derives features from the range (KAFKA-18659), but refused as in Kafka 4.",
    ),
    ("InitProducerId 6", "understood, but not advertised: Kafka marks it unstable (two-phase commit, KIP-939)."),
    ("Text that is not UTF-8", "refused, with a disconnect; Kafka replaces the bad bytes and goes on."),
    ("A tag given twice", "refused, with a disconnect; Kafka lets the last one win."),
    (
        "Inside records, at produce",
        "where a batch can be taken as it is (the producer's codec kept, a topic that is not compacted, timestamps in "
        "bounds by its header) these checks of Kafka are not made, because they cost a step for every record: that "
        "the records fill the batch and are as many as its header says (made for small uncompressed batches), each "
        "record's own timestamp (the header's first and largest are checked), the header's largest timestamp against "
        "the records', offset deltas, and that compressed records can be decompressed. All are made on compacted "
        "topics and when `compression.type` converts.",
    ),
    (
        "Batches that unfold too far",
        "one that has to be opened and unfolds beyond 64 MiB (or 4 times max.message.bytes), or holds more than "
        "500,000 records, is answered MESSAGE_TOO_LARGE, so that clients split it; Kafka has no ceiling.",
    ),
    ("Unknown codecs", "answered UNSUPPORTED_COMPRESSION_TYPE; Kafka answers UNKNOWN_SERVER_ERROR."),
    (
        "Groups and transactions",
        "FindCoordinator answers COORDINATOR_NOT_AVAILABLE with the reason, transactional records are refused with "
        "INVALID_TXN_STATE; the rest is unadvertised.",
    ),
    (
        "Limits that Kafka leaves infinite",
        "are finite: 10,000 connections, 5,000 of one address, 512 MiB of requests not yet decided, 10 pipelined "
        "requests of one connection, 30 s for a frame to arrive, 250,000 elements in the lists of a request, 10,000 "
        "topics or resources in one that goes to the controller, 300,000 partitions in fetch sessions (beyond that a "
        "fetch is answered without one).",
    ),
    (
        "Topics created on demand",
        "are there before Metadata answers, so that no client has to ask again; Kafka answers with an error first.",
    ),
    (
        "Loggers as configuration",
        "(resources of type BROKER_LOGGER) are Python's, so they have other names than Kafka's, `root` excepted; "
        "through a controller's listener they are described, and not changed.",
    ),
    (
        "The same thing named twice",
        "in one DescribeConfigs or DescribeProducers request is described once; Kafka describes it as often as asked.",
    ),
    (
        "Mistakes that Kafka has no name for",
        "and answers with UNKNOWN_SERVER_ERROR, or not at all, get the error that fits. Every answer that differs from "
        "Kafka's is written down with its reason (`differs:` in tests/cluster/handlers/answers).",
    ),
    (
        "Metrics",
        "are read in HTTP at any listener (`GET /metrics`, in Prometheus' format; `strandline.metrics.page.enable` "
        "turns it off) instead of JMX.",
    ),
    ("num.network.threads", "known and ignored: one event loop serves all connections."),
    (
        "Security",
        "only PLAINTEXT listeners; a configuration with an authorizer, TLS or SASL is refused by name. So lists of "
        "access are answered SECURITY_DISABLED and delegation tokens refused, as by a Kafka that is set up like this; "
        "SCRAM credentials are kept, for the day when somebody asks for a password.",
    ),
    ("Client quotas", "are kept and described; nobody is throttled by them yet."),
    (
        "Settings",
        "every broker and topic key of Kafka 4.3 is known, checked and described; those about groups, transactions, "
        "throttles of replicas, `num.replica.fetchers` (there is one for each leader), `replica.selector.class`, "
        "quotas, security, remote storage and metrics reporters have no effect until these exist.",
    ),
    (
        "Voters named in files",
        "(`controller.quorum.voters`): one whose disk was emptied and formatted again under its id votes without a "
        "memory, and nobody can tell, as in Kafka. Voters in the log (`kraft.version` 1, what `up` makes) are known by "
        "their directories too.",
    ),
    (
        "A full log directory",
        "refuses writes and keeps serving reads until there is room again; Kafka takes it offline.",
    ),
    ("Remote storage", "there is none: `remote.storage.enable=true` is refused."),
)
