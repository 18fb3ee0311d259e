"""The transactional batches of one Produce request: confirmed by the transaction coordinator before they are appended.

`of` makes one request to the coordinator for all partitions that need it, before the first append; `check` decides
right before each append whether the confirmation still holds (see `ongoing_transactions`).
"""

from __future__ import annotations

from typing import Any, Final

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.ongoing_transactions import check_verified, confirm, error_for_producer, start_verification
from strandline.log.partition_log import PartitionLog
from strandline.log.producers import Verification
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)

_FIRST_VERSION_THAT_ADDS: Final = 12
_FIRST_VERSION_WITH_ABORTABLE: Final = 11


def is_transactional(records: Any) -> bool:
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


class ConfirmedTransactions:
    __slots__ = ("_codes", "_is_required", "_knows_abortable", "_verifications")

    def __init__(self, *, is_required: bool, knows_abortable: bool) -> None:
        self._is_required = is_required
        self._knows_abortable = knows_abortable
        self._verifications: dict[TopicPartition, Verification] = {}
        self._codes: dict[TopicPartition, ErrorCode] = {}

    @classmethod
    async def of(cls, broker: BrokerContext, call: Call, request: ProduceRequest) -> ConfirmedTransactions:
        adds = call.version >= _FIRST_VERSION_THAT_ADDS
        is_required = adds or bool(broker.config.get("transaction.partition.verification.enable"))
        confirmed = cls(is_required=is_required, knows_abortable=call.version >= _FIRST_VERSION_WITH_ABORTABLE)
        if not is_required:
            return confirmed
        producers: dict[tuple[int, int], list[TopicPartition]] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if is_transactional(data.records):
                    found = await confirmed._start(broker, call, topic, data)
                    if found is not None:
                        partition, header = found
                        producers.setdefault((header.producer_id, header.producer_epoch), []).append(partition)
        if not producers:
            return confirmed
        call.park()
        assert request.transactional_id is not None
        for producer, partitions in producers.items():
            confirmed._codes |= await confirm(
                broker, request.transactional_id, *producer, partitions, verify_only=not adds
            )
        return confirmed

    async def _start(
        self, broker: BrokerContext, call: Call, topic: TopicProduceData, data: PartitionProduceData
    ) -> tuple[TopicPartition, BatchHeader] | None:
        """The partition, if its transaction is to be confirmed. One that cannot be appended to is left to the append,
        which finds out the error."""
        try:
            partition = broker.partitions.find(topic.name, topic.topic_id, data.index, by_id=call.version >= 13)
            partition.leading()
            log = partition.log or await partition.ready()
        except KafkaError:
            return None
        header = read_header(data.records)  # type: ignore[arg-type]
        verification = start_verification(log, header)
        if verification is None:
            return None
        self._verifications[partition.topic_partition] = verification
        return partition.topic_partition, header

    def check(self, partition: TopicPartition, log: PartitionLog, header: BatchHeader) -> None:
        if not self._is_required or not header.is_transactional:
            return
        code = self._codes.get(partition, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise error_for_producer(code, knows_abortable=self._knows_abortable)
        check_verified(log, header, self._verifications.get(partition))
