"""Blocks of producer ids: AllocateProducerIds (67). The record contains the first id of the *next* block."""

from __future__ import annotations

from typing import Final

from strandline.controller.brokers import registered_broker
from strandline.controller.decisions import Decision
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import ProducerIdsRecord
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = 2**63 - 1


def allocate(view: View, request: AllocateProducerIdsRequest) -> Decision[AllocateProducerIdsResponse]:
    registered_broker(view, request.broker_id, request.broker_epoch)
    first = view.next_producer_id
    if first > _LAST_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been allocated")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), [record])
