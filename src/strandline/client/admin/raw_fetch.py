"""Fetches record batches as bytes, without decoding them: for readers that decode in bulk, and for lookups of single
records. One request per leader and call, without fetch sessions; the caller keeps the positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.client.connection import Connection
from strandline.client.core.fetched_records import FetchedPartition, read_fetched_records
from strandline.client.routing import Router
from strandline.model.errors import KafkaError, code_of
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

_BY_TOPIC_ID = 13


class RawFetchSettings(msgspec.Struct, frozen=True):
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    read_committed: bool = False


class RawBatches(msgspec.Struct, frozen=True):
    """What a leader returned of one partition: batches from before or at the requested offset on. The last batch may
    be incomplete."""

    partition: TopicPartition
    offset: int
    data: PartitionData

    @property
    def batches(self) -> bytes:
        records = self.data.records
        return bytes(records) if isinstance(records, (bytes, bytearray, memoryview)) else b""

    @property
    def high_watermark(self) -> int:
        return self.data.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.data.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.data.log_start_offset

    @property
    def aborted(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions, with `read_committed`."""
        return [(each.producer_id, each.first_offset) for each in self.data.aborted_transactions or ()]

    def decoded(self, *, read_committed: bool) -> FetchedPartition:
        """The visible records, and the offset to fetch next."""
        return read_fetched_records(
            self.partition, self.data, self.offset, read_committed=read_committed, check_crcs=True, keep_control=False
        )


async def fetch_raw(
    router: Router,
    positions: Mapping[TopicPartition, int],
    settings: RawFetchSettings | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, RawBatches | KafkaError]:
    """Batches of each partition from its position on. Every leader returns at least one whole batch, if it has one, for
    the first of its partitions that has records."""
    wanted = settings or RawFetchSettings()

    async def attempt(
        connection: Connection, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, RawBatches | KafkaError]:
        request = _request(router, positions, partitions, wanted)
        by_id = all(topic.topic_id != ZERO_UUID for topic in request.topics)
        version = connection.versions.newest_common_version(FetchRequest, None if by_id else _BY_TOPIC_ID - 1)
        limit_ms = wanted.max_wait_ms + router.settings.request_timeout_ms
        response = await connection.call(request, FetchResponse, version=version, timeout_ms=limit_ms)
        return _results(router, response, partitions, positions)

    return await router.per_leader(positions, attempt, timeout_ms)


def _request(
    router: Router,
    positions: Mapping[TopicPartition, int],
    partitions: list[TopicPartition],
    settings: RawFetchSettings,
) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for each in partitions:
        leader = router.metadata.leader_of(each)
        topic = topics.setdefault(each.topic, FetchTopic(each.topic, router.metadata.id_of(each.topic)))
        topic.partitions.append(
            FetchPartition(
                partition=each.partition,
                current_leader_epoch=leader[1] if leader is not None else -1,
                fetch_offset=positions[each],
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=int(settings.read_committed),
        session_epoch=-1,
        topics=list(topics.values()),
    )


def _results(
    router: Router,
    response: FetchResponse,
    partitions: list[TopicPartition],
    positions: Mapping[TopicPartition, int],
) -> dict[TopicPartition, RawBatches | KafkaError]:
    if response.error_code:
        failed = KafkaError(code_of(response.error_code), "fetching batches")
        return dict.fromkeys(partitions, failed)
    found: dict[TopicPartition, RawBatches | KafkaError] = {}
    for topic in response.responses:
        name = topic.topic or router.metadata.names.get(topic.topic_id, "")
        for data in topic.partitions:
            partition = TopicPartition(name, data.partition_index)
            if data.error_code:
                why = f"fetching {partition} from offset {positions.get(partition)}"
                found[partition] = KafkaError(code_of(data.error_code), why)
            else:
                found[partition] = RawBatches(partition, positions[partition], data)
    missing = KafkaError(code_of(-1), "the response lacks this partition")
    return {each: found.get(each, missing) for each in partitions}
