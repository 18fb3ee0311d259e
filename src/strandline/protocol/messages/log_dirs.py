"""Log directories: AlterReplicaLogDirs (34), DescribeLogDirs (35)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i16, i32, i64, ignorable, since, string


class DescribeLogDirsRequest(Message, api_key=35, versions=(1, 5), flexible=2):
    topics: list[DescribableLogDirTopic] | None = []


class DescribableLogDirTopic(Struct):
    topic: string = ""
    partitions: list[i32] = []


class DescribeLogDirsResponse(Message, api_key=35, versions=(1, 5), flexible=2):
    """v2 flexible, v3 error code, v4 size of the volume (KIP-827), v5 cordoned directories (KIP-1066)."""

    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, since(3), ignorable] = 0
    results: list[DescribeLogDirsResult] = []


class DescribeLogDirsResult(Struct):
    error_code: i16 = 0
    log_dir: string = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[i64, since(4), ignorable] = -1
    usable_bytes: Annotated[i64, since(4), ignorable] = -1
    is_cordoned: Annotated[boolean, since(5), ignorable] = False


class DescribeLogDirsTopic(Struct):
    name: string = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsPartition(Struct):
    partition_index: i32 = 0
    partition_size: i64 = 0
    offset_lag: i64 = 0
    is_future_key: boolean = False


class AlterReplicaLogDirsRequest(Message, api_key=34, versions=(1, 2), flexible=2):
    """v2 flexible."""

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Struct):
    path: string = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Struct):
    name: string = ""
    partitions: list[i32] = []


class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(1, 2), flexible=2):
    throttle_time_ms: i32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: string = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
