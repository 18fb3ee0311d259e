"""Records of `__transaction_state`: one per transactional id."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, since, string, tag


class TransactionLogKey(Message, api_key=0, versions=(0, 0)):
    transactional_id: string = ""


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible=1):
    """v1 flexible, with the producer ids before and after, and the client's transaction version (KIP-890)."""

    producer_id: i64 = 0
    previous_producer_id: Annotated[i64, since(1), tag(0)] = -1
    next_producer_id: Annotated[i64, since(1), tag(1)] = -1
    producer_epoch: i16 = 0
    next_producer_epoch: Annotated[i16, since(1), tag(3)] = -1
    transaction_timeout_ms: i32 = 0
    transaction_status: i8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: i64 = 0
    transaction_start_timestamp_ms: i64 = 0
    client_transaction_version: Annotated[i16, since(1), tag(2)] = 0


class PartitionsSchema(Struct):
    topic: string = ""
    partition_ids: list[i32] = []
