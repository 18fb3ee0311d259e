"""A small broker for tests of the client's shells, on simulated machines: logs in memory, sequence numbers checked as
in Kafka, and `faults` to inject into the next responses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import FrameParser, decode_header, response_parts
from strandline.protocol.messages import api_versions, fetch, list_offsets, metadata, produce, producers
from strandline.protocol.types import Message
from strandline.records.batch import Record, batches, decode_batch, read_header
from strandline.runtime.world import World

TOPIC_ID = Uuid(b"topic id of 16 b")
PORT = 9092


class FakeBroker:
    def __init__(self, name: str, topics: dict[str, int]) -> None:
        self.name = name
        self.topics = topics
        self.logs: dict[TopicPartition, bytearray] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.received: list[tuple[ApiKey, int]] = []
        self.faults: deque[ErrorCode | str] = deque()
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        self.damage: dict[TopicPartition, tuple[int, ErrorCode]] = {}
        """The error of fetches from this offset on."""
        self.next_producer_id = 1000
        self._sequences: dict[tuple[TopicPartition, int], list[tuple[int, int, int]]] = {}
        self._grown = asyncio.Event()

    async def run(self, world: World) -> None:
        await world.network.listen("", PORT, lambda: _Peer(self))
        await asyncio.get_running_loop().create_future()

    def records(self, partition: TopicPartition) -> list[Record]:
        log = bytes(self.logs.get(partition, b""))
        return [record for position, _ in batches(log) for record in decode_batch(log, position)]

    async def respond(self, key: ApiKey, version: int, request: Any) -> Message | None:
        self.received.append((key, version))
        handlers: dict[ApiKey, Callable[[int, Any], Message]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.PRODUCE: self._produce,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }
        if key == ApiKey.FETCH:
            return await self._fetch(version, request)
        response = handlers[key](version, request)
        return None if key == ApiKey.PRODUCE and request.acks == 0 else response

    def _api_versions(self, version: int, request: Any) -> Message:
        served = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID)
        keys = []
        for key in served:
            low, high = self.versions.get(key, (API[key].min_version, API[key].max_version))
            keys.append(api_versions.ApiVersion(api_key=key, min_version=low, max_version=high))
        return api_versions.ApiVersionsResponse(api_keys=keys)

    def _metadata(self, version: int, request: metadata.MetadataRequest) -> Message:
        requested = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host=self.name, port=PORT)],
            cluster_id="fake",
            controller_id=1,
            topics=[self._topic(name) for name in requested],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        if name not in self.topics:
            return metadata.MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            metadata.MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=0)
            for index in range(self.topics[name])
        ]
        return metadata.MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=partitions)

    def _init_producer_id(self, version: int, request: Any) -> Message:
        self.next_producer_id += 1
        return producers.InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def _produce(self, version: int, request: produce.ProduceRequest) -> Message:
        response = produce.ProduceResponse()
        for topic in request.topic_data:
            name = topic.name or next(iter(self.topics))
            results = [self._append(TopicPartition(name, each.index), each.records) for each in topic.partition_data]
            response.responses.append(
                produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
            )
        self._grown.set()
        self._grown = asyncio.Event()
        return response

    def _append(self, partition: TopicPartition, records: Any) -> produce.PartitionProduceResponse:
        fault = self.faults.popleft() if self.faults and isinstance(self.faults[0], ErrorCode) else None
        data = bytearray(records)
        code, offset = self._check_sequence(partition, data) if fault is None else (fault, -1)
        if code == ErrorCode.NONE and offset < 0:
            offset = self._store(partition, data)
        return produce.PartitionProduceResponse(index=partition.partition, error_code=code, base_offset=offset)

    def _store(self, partition: TopicPartition, data: bytearray) -> int:
        header = read_header(data)
        offset = self.ends.get(partition, 0)
        data[:8] = offset.to_bytes(8, "big")
        self.logs.setdefault(partition, bytearray()).extend(data)
        self.ends[partition] = offset + header.last_offset_delta + 1
        if header.producer_id >= 0:
            known = self._sequences.setdefault((partition, header.producer_id), [])
            known.append((header.base_sequence, header.last_sequence, offset))
            del known[:-5]
        return offset

    def _check_sequence(self, partition: TopicPartition, data: bytearray) -> tuple[ErrorCode, int]:
        """(error, the offset of the first append of a duplicate batch)."""
        header = read_header(data)
        known = self._sequences.get((partition, header.producer_id), [])
        if header.producer_id < 0:
            return ErrorCode.NONE, -1
        for first, last, offset in known:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        expected = known[-1][1] + 1 if known else 0
        return (ErrorCode.NONE if header.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1

    def _list_offsets(self, version: int, request: list_offsets.ListOffsetsRequest) -> Message:
        response = list_offsets.ListOffsetsResponse()
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                end = self.ends.get(TopicPartition(topic.name, each.partition_index), 0)
                offset = end if each.timestamp == -1 else 0
                partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=offset)
                )
            response.topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return response

    async def _fetch(self, version: int, request: fetch.FetchRequest) -> Message:
        grown = self._grown
        response = self._fetched(version, request)
        if not any(each.records or each.error_code for topic in response.responses for each in topic.partitions):
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await grown.wait()
            except TimeoutError:
                return response
            response = self._fetched(version, request)
        return response

    def _fetched(self, version: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        response = fetch.FetchResponse()
        for topic in request.topics:
            name = topic.topic or next(iter(self.topics))
            response.responses.append(
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._read(TopicPartition(name, each.partition), each) for each in topic.partitions],
                )
            )
        return response

    def _read(self, partition: TopicPartition, requested: fetch.FetchPartition) -> fetch.PartitionData:
        end = self.ends.get(partition, 0)
        damaged_from, code = self.damage.get(partition, (1 << 62, ErrorCode.NONE))
        if requested.fetch_offset >= damaged_from:
            return fetch.PartitionData(partition_index=partition.partition, error_code=code, records=b"")
        if requested.fetch_offset > end:
            return fetch.PartitionData(
                partition_index=partition.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b""
            )
        log = bytes(self.logs.get(partition, b""))
        starts = [position for position, header in batches(log) if header.last_offset >= requested.fetch_offset]
        found = log[starts[0] : starts[0] + 2_000] if starts else b""
        return fetch.PartitionData(
            partition_index=partition.partition,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            records=found,
        )


class _Peer(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._frames = FrameParser(1 << 24)
        self._questions: asyncio.Queue[bytearray] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._task = asyncio.get_running_loop().create_task(self._serve(transport))

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        while (frame := self._frames.next_frame()) is not None:
            self._questions.put_nowait(frame)

    async def _serve(self, transport: asyncio.Transport) -> None:
        broker = self._broker
        while True:
            frame = await self._questions.get()
            header, position = decode_header(frame)
            key = ApiKey(header.api_key)
            api = API[key]
            request, _ = decode(api.request, header.api_version, frame, position)
            if broker.faults and broker.faults[0] == f"drop {key.name} before":
                broker.faults.popleft()
                transport.abort()
                return
            response = await broker.respond(key, header.api_version, request)
            if broker.faults and broker.faults[0] == f"drop {key.name} after":
                broker.faults.popleft()
                transport.abort()
                return
            if broker.faults and broker.faults[0] == f"ignore {key.name}":
                broker.faults.popleft()
                continue
            if response is not None:
                for part in response_parts(header.correlation_id, api, header.api_version, response):
                    transport.write(bytes(part))  # type: ignore[arg-type]
