"""State of share partitions (KIP-932), between group and share coordinators: keys 83 to 87."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, ignorable, since, string, uuid


class InitializeShareGroupStateRequest(Message, api_key=83, versions=(0, 0), flexible=0):
    group_id: string = ""
    topics: list[InitializeStateData] = []


class InitializeStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[InitializeShareGroupStateRequestPartitionData] = []


class InitializeShareGroupStateRequestPartitionData(Struct):
    partition: i32 = 0
    state_epoch: i32 = 0
    start_offset: i64 = 0


class InitializeShareGroupStateResponse(Message, api_key=83, versions=(0, 0), flexible=0):
    results: list[InitializeStateResult] = []


class InitializeStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[InitializeShareGroupStateResponsePartitionResult] = []


class InitializeShareGroupStateResponsePartitionResult(Struct):
    partition: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None


class ReadShareGroupStateRequest(Message, api_key=84, versions=(0, 0), flexible=0):
    group_id: string = ""
    topics: list[ReadStateData] = []


class ReadStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareGroupStateRequestPartitionData] = []


class ReadShareGroupStateRequestPartitionData(Struct):
    partition: i32 = 0
    leader_epoch: i32 = 0


class ReadShareGroupStateResponse(Message, api_key=84, versions=(0, 0), flexible=0):
    results: list[ReadStateResult] = []


class ReadStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareGroupStateResponsePartitionResult] = []


class ReadShareGroupStateResponsePartitionResult(Struct):
    partition: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    state_epoch: i32 = 0
    start_offset: i64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    first_offset: i64 = 0
    last_offset: i64 = 0
    delivery_state: i8 = 0
    delivery_count: i16 = 0


class WriteShareGroupStateRequest(Message, api_key=85, versions=(0, 1), flexible=0):
    """v1 count of completed deliveries (KIP-1226)."""

    group_id: string = ""
    topics: list[WriteStateData] = []


class WriteStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[WriteShareGroupStateRequestPartitionData] = []


class WriteShareGroupStateRequestPartitionData(Struct):
    partition: i32 = 0
    state_epoch: i32 = 0
    leader_epoch: i32 = 0
    start_offset: i64 = 0
    delivery_complete_count: Annotated[i32, since(1), ignorable] = -1
    state_batches: list[StateBatch] = []


class WriteShareGroupStateResponse(Message, api_key=85, versions=(0, 1), flexible=0):
    results: list[WriteStateResult] = []


class WriteStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[InitializeShareGroupStateResponsePartitionResult] = []


class DeleteShareGroupStateRequest(Message, api_key=86, versions=(0, 0), flexible=0):
    group_id: string = ""
    topics: list[DeleteStateData] = []


class DeleteStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[DeleteShareGroupStateRequestPartitionData] = []


class DeleteShareGroupStateRequestPartitionData(Struct):
    partition: i32 = 0


class DeleteShareGroupStateResponse(Message, api_key=86, versions=(0, 0), flexible=0):
    results: list[DeleteStateResult] = []


class DeleteStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[InitializeShareGroupStateResponsePartitionResult] = []


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions=(0, 1), flexible=0):
    group_id: string = ""
    topics: list[ReadStateSummaryData] = []


class ReadStateSummaryData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareGroupStateRequestPartitionData] = []


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions=(0, 1), flexible=0):
    """v1 count of completed deliveries (KIP-1226)."""

    results: list[ReadStateSummaryResult] = []


class ReadStateSummaryResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareGroupStateSummaryResponsePartitionResult] = []


class ReadShareGroupStateSummaryResponsePartitionResult(Struct):
    partition: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    state_epoch: i32 = 0
    leader_epoch: i32 = 0
    start_offset: i64 = 0
    delivery_complete_count: Annotated[i32, since(1), ignorable] = -1
