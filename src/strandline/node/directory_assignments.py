"""Telling the controller in which log directory this broker keeps a replica (AssignReplicasToDirs, KIP-858).

The controller knows it by itself where a broker has one directory. With several, the broker chooses when it makes the
log, and must say so: otherwise nobody could tell which partitions a failed directory takes with it. Told once per
replica, many in one request, again until it is heard.

A replica that turned out to be damaged while it leads is given up in the same way: it is told to be in the directory
LOST, upon which another one leads, and right after to be where it is (docs/decisions/0016).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import DIRECTORY_LOST, Uuid
from strandline.node.lifecycle import Send
from strandline.protocol.messages.brokers import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger(__name__)

# Kafka's limit for one request.
_MOST_AT_ONCE: Final = 2_250
_RETRY_MS: Final = 500

Replica = tuple[Uuid, int]
"""(topic id, partition)"""


class DirectoryAssignments:
    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], image: Image, send: Send) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._send = send
        self._untold: dict[Replica, Uuid] = {}
        # Those to be given up, and where they are.
        self._damaged: dict[Replica, Uuid] = {}
        self._work = asyncio.Event()

    def opened(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """A replica lives in this directory, whatever the metadata say."""
        info = self._image.committed.partition(topic_id, partition)
        if info is not None and info.directory_of(self._broker_id) not in (None, directory_id):
            self._untold[topic_id, partition] = directory_id
            self._work.set()

    def give_up(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """A replica leads that should not: it is damaged, and others are not."""
        if (topic_id, partition) not in self._damaged:
            logger.error("%s-%d is damaged here: another replica has to lead", topic_id, partition)
            self._damaged[topic_id, partition] = directory_id
            self._work.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._untold or self._damaged:
                try:
                    await self._give_up_damaged()
                    portion = dict(list(self._untold.items())[:_MOST_AT_ONCE])
                    self._heard(portion, await self._tell(portion))
                except KafkaError as error:
                    logger.warning("the controller does not know yet where replicas are: %s", error)
                    if error.code is ErrorCode.UNSUPPORTED_VERSION:
                        # Metadata without directories has no word for a damaged replica: it goes on as it is.
                        self._damaged.clear()
                    await asyncio.sleep(_RETRY_MS / 1000)

    async def _give_up_damaged(self) -> None:
        portion = dict(list(self._damaged.items())[:_MOST_AT_ONCE])
        led = [replica for replica in portion if self._leads(replica)]
        if led:
            await self._tell(dict.fromkeys(led, DIRECTORY_LOST))
        for replica, directory_id in portion.items():
            del self._damaged[replica]
            self._untold[replica] = directory_id

    def _leads(self, replica: Replica) -> bool:
        """Asked again when it is told: what was handed over meanwhile may be whole by now."""
        info = self._image.committed.partition(*replica)
        return info is not None and info.leader == self._broker_id

    async def _tell(self, portion: dict[Replica, Uuid]) -> AssignReplicasToDirsResponse:
        request = request_of(self._broker_id, self._broker_epoch(), portion)
        return await self._send(request, AssignReplicasToDirsResponse)

    def _heard(self, portion: dict[Replica, Uuid], response: AssignReplicasToDirsResponse) -> None:
        """An error of a single replica is final (it is gone, or elsewhere by now): opening it again tells it again."""
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        logger.info(
                            "the controller does not take directory %s for %s-%d: %s",
                            directory.id,
                            topic.topic_id,
                            partition.partition_index,
                            code_of(partition.error_code).name,
                        )
        for replica, directory_id in portion.items():
            if self._untold.get(replica) == directory_id:
                del self._untold[replica]


def request_of(broker_id: int, broker_epoch: int, replicas: dict[Replica, Uuid]) -> AssignReplicasToDirsRequest:
    directories: dict[Uuid, dict[Uuid, list[int]]] = {}
    for (topic_id, partition), directory_id in replicas.items():
        directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequestDirectoryData(
                id=directory_id,
                topics=[
                    AssignReplicasToDirsRequestTopicData(
                        topic_id=topic_id,
                        partitions=[
                            AssignReplicasToDirsRequestPartitionData(partition_index=partition)
                            for partition in partitions
                        ],
                    )
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory_id, topics in directories.items()
        ],
    )
