"""ISR proposals to the controller: collected while one AlterPartition request is in flight, sent together, and retried
until the controller has responded or a newer proposal replaces them. The shell of `leader.IsrChange`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from strandline.replication.leader import Brokers, IsrChange, ProposalOutcome
from strandline.replication.partition import Partition

logger = logging.getLogger(__name__)

_RETRY_MS = 50
# Bounds the request of a broker that leads tens of thousands of partitions.
_PER_REQUEST = 1_000

Send = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
Responses = dict[tuple[Uuid, int], AlterPartitionResponsePartitionData]
Proposals = dict[tuple[Uuid, int], tuple[Partition, IsrChange]]


class IsrProposals:
    def __init__(self, node_id: int, brokers: Brokers, send: Send) -> None:
        """`send` calls the active controller; it raises KafkaError or OSError when that fails."""
        self._node_id = node_id
        self._send = send
        self._brokers = brokers
        self._waiting: Proposals = {}
        self._work = asyncio.Event()

    def propose(self, partition: Partition, change: IsrChange) -> None:
        self._waiting[partition.topic_id, partition.topic_partition.partition] = partition, change
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            sent = dict(list(self._waiting.items())[:_PER_REQUEST])
            for key in sent:
                del self._waiting[key]
            if not self._waiting:
                self._work.clear()
            if sent and not await self._send_proposals(sent):
                await asyncio.sleep(_RETRY_MS / 1000)

    async def _send_proposals(self, sent: Proposals) -> bool:
        """False when a proposal has to be retried."""
        try:
            response = await self._send(self._request(sent))
        except (OSError, KafkaError) as error:
            logger.debug("the controller did not respond to ISR proposals: %s", error)
            return self._settle(sent, {}, ErrorCode.NETWORK_EXCEPTION)
        code = code_of(response.error_code)
        responses = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        return self._settle(sent, responses, code)

    def _settle(self, sent: Proposals, responses: Responses, code: ErrorCode) -> bool:
        done = True
        for key, (partition, change) in sent.items():
            response = responses.get(key)
            if partition.leader is None or partition.leader.leader_epoch != change.leader_epoch:
                continue
            if response is None:
                # The whole request failed, or the response lacks the partition: the outcome is unknown.
                error = code if code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
                outcome = partition.leader.on_proposal_response(change, error)
            else:
                outcome = partition.leader.on_proposal_response(
                    change, code_of(response.error_code), tuple(response.isr), response.partition_epoch
                )
                _report(partition, change, code_of(response.error_code))
            if outcome is ProposalOutcome.RETRY:
                done = False
                self._waiting.setdefault(key, (partition, change))
                self._work.set()
        return done

    def _request(self, sent: Proposals) -> AlterPartitionRequest:
        topics: dict[Uuid, AlterPartitionRequestTopicData] = {}
        for (topic_id, index), (_, change) in sent.items():
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopicData(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    new_isr_with_epochs=[self._member(*member) for member in change.members],
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._brokers.registered_epoch(self._node_id),
            topics=list(topics.values()),
        )

    def _member(self, broker_id: int, broker_epoch: int) -> BrokerState:
        epoch = self._brokers.registered_epoch(broker_id) if broker_id == self._node_id else broker_epoch
        return BrokerState(broker_id=broker_id, broker_epoch=epoch)


def _report(partition: Partition, change: IsrChange, code: ErrorCode) -> None:
    if code == ErrorCode.NONE:
        logger.info("%s has the ISR %s", partition.topic_partition, list(change.isr))
    else:
        logger.info("%s: the ISR %s was rejected: %s", partition.topic_partition, list(change.isr), code.name)
