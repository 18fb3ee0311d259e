"""Reports to the controller which log directory holds each replica (AssignReplicasToDirs, KIP-858).

For a broker with a single directory the controller knows it. With several, the broker chooses the directory when it
creates the log and reports it, so that the controller knows which replicas go offline with a failed directory. Each
replica is reported once, many replicas per request, with retries until a controller responds.

A leader whose log turned out to be damaged hands over in the same way: its replica is reported in the directory LOST,
so that the controller elects another leader, and right after that in its real directory (docs/decisions/0016).
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

_MAX_REPLICAS_PER_REQUEST: Final = 2_250
"""Kafka's limit."""
_RETRY_MS: Final = 500

Replica = tuple[Uuid, int]
"""(topic id, partition)"""


class DirectoryAssignments:
    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], image: Image, send: Send) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._send = send
        self._unreported: dict[Replica, Uuid] = {}
        self._damaged: dict[Replica, Uuid] = {}
        """Leaders that hand over, with their real directories."""
        self._work = asyncio.Event()

    def on_log_opened(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """Reports the directory unless committed metadata has it already."""
        info = self._image.committed.partition(topic_id, partition)
        if info is not None and info.directory_of(self._broker_id) not in (None, directory_id):
            self._unreported[topic_id, partition] = directory_id
            self._work.set()

    def on_damaged_leader(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """Another replica has to lead: the log of this one is damaged, and those of others are not."""
        if (topic_id, partition) not in self._damaged:
            logger.error("the log of %s-%d is damaged on this broker: another replica has to lead", topic_id, partition)
            self._damaged[topic_id, partition] = directory_id
            self._work.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._unreported or self._damaged:
                try:
                    await self._hand_over_damaged()
                    portion = dict(list(self._unreported.items())[:_MAX_REPLICAS_PER_REQUEST])
                    self._on_response(portion, await self._report(portion))
                except KafkaError as error:
                    logger.warning("reporting the directories of replicas failed: %s", error)
                    if error.code is ErrorCode.UNSUPPORTED_VERSION:
                        # Metadata that does not record directories cannot express LOST: the damaged leader stays.
                        self._damaged.clear()
                    await asyncio.sleep(_RETRY_MS / 1000)

    async def _hand_over_damaged(self) -> None:
        portion = dict(list(self._damaged.items())[:_MAX_REPLICAS_PER_REQUEST])
        led = [replica for replica in portion if self._leads(replica)]
        if led:
            await self._report(dict.fromkeys(led, DIRECTORY_LOST))
        for replica, directory_id in portion.items():
            del self._damaged[replica]
            self._unreported[replica] = directory_id

    def _leads(self, replica: Replica) -> bool:
        """Checked when the report is sent: a replica that no longer leads may have been repaired since."""
        info = self._image.committed.partition(*replica)
        return info is not None and info.leader == self._broker_id

    async def _report(self, portion: dict[Replica, Uuid]) -> AssignReplicasToDirsResponse:
        request = request_of(self._broker_id, self._broker_epoch(), portion)
        return await self._send(request, AssignReplicasToDirsResponse)

    def _on_response(self, portion: dict[Replica, Uuid], response: AssignReplicasToDirsResponse) -> None:
        """Errors of single replicas are final (deleted or moved meanwhile); opening the log again reports it again."""
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        logger.info(
                            "the controller rejected directory %s for %s-%d: %s",
                            directory.id,
                            topic.topic_id,
                            partition.partition_index,
                            code_of(partition.error_code).name,
                        )
        for replica, directory_id in portion.items():
            if self._unreported.get(replica) == directory_id:
                del self._unreported[replica]


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
