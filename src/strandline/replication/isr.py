"""Proposals on their way to the controller: gathered while one request is under way, sent together, asked again until
they are answered or overtaken. The shell of `leader.IsrChange`.
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
from strandline.replication.leader import IsrChange, Verdict
from strandline.replication.partition import Partition

logger = logging.getLogger(__name__)

_RETRY_MS = 50
# One request names no more, so that a broker that leads tens of thousands does not ask for all of them at once.
_PER_REQUEST = 1_000

Send = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
Answers = dict[tuple[Uuid, int], AlterPartitionResponsePartitionData]
Waiting = dict[tuple[Uuid, int], tuple[Partition, IsrChange]]


class IsrChanges:
    def __init__(self, node_id: int, send: Send, broker_epoch: Callable[[], int]) -> None:
        """`send` reaches the active controller, wherever it is; raises KafkaError or OSError when it cannot."""
        self._node_id = node_id
        self._send = send
        self._broker_epoch = broker_epoch
        self._waiting: Waiting = {}
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
            if sent and not await self._ask(sent):
                await asyncio.sleep(_RETRY_MS / 1000)

    async def _ask(self, sent: Waiting) -> bool:
        """False when something has to be asked again."""
        try:
            response = await self._send(self._request(sent))
        except (OSError, KafkaError) as error:
            logger.debug("the controller does not answer a proposal: %s", error)
            return self._settle(sent, {}, ErrorCode.NETWORK_EXCEPTION)
        code = code_of(response.error_code)
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        return self._settle(sent, answers, code)

    def _settle(
        self, sent: Waiting, answers: dict[tuple[Uuid, int], AlterPartitionResponsePartitionData], code: ErrorCode
    ) -> bool:
        done = True
        for key, (partition, change) in sent.items():
            answer = answers.get(key)
            if partition.leader is None or partition.leader.leader_epoch != change.leader_epoch:
                continue
            if answer is None:
                # Refused as a whole, or left out: it is not known what became of it.
                error = code if code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
                verdict = partition.leader.on_answer(change, error)
            else:
                verdict = partition.leader.on_answer(
                    change, code_of(answer.error_code), tuple(answer.isr), answer.partition_epoch
                )
                _report(partition, change, code_of(answer.error_code))
            if verdict is Verdict.AGAIN:
                done = False
                self._waiting.setdefault(key, (partition, change))
                self._work.set()
        return done

    def _request(self, sent: Waiting) -> AlterPartitionRequest:
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
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _member(self, broker_id: int, broker_epoch: int) -> BrokerState:
        epoch = self._broker_epoch() if broker_id == self._node_id else broker_epoch
        return BrokerState(broker_id=broker_id, broker_epoch=epoch)


def _report(partition: Partition, change: IsrChange, code: ErrorCode) -> None:
    if code == ErrorCode.NONE:
        logger.info("%s has the ISR %s now", partition.topic_partition, list(change.isr))
    else:
        logger.info("%s does not get the ISR %s: %s", partition.topic_partition, list(change.isr), code.name)
