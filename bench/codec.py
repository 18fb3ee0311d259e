"""Microseconds to decode and encode the most frequent messages: `python bench/codec.py`.

Each line is the best of several rounds, to exclude the noise of other processes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strandline.model.ids import Uuid
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.framing import decode_header, request_parts, response_parts
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from strandline.protocol.types import Message

TOPIC_ID = Uuid(bytes(range(16)))


def produce_request(partitions: int, size: int, *, by_name: bool = False) -> ProduceRequest:
    data = [PartitionProduceData(index, bytes(size)) for index in range(partitions)]
    topic = TopicProduceData(name="topic") if by_name else TopicProduceData(topic_id=TOPIC_ID)
    topic.partition_data = data
    return ProduceRequest(None, -1, 30_000, [topic])


def produce_response(partitions: int) -> ProduceResponse:
    responses = [PartitionProduceResponse(index, 0, 100, -1, 0) for index in range(partitions)]
    return ProduceResponse([TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=responses)])


def fetch_request(partitions: int) -> FetchRequest:
    wanted = [FetchPartition(index, 0, 100, -1, -1, 1_048_576) for index in range(partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=0, topics=[FetchTopic("", TOPIC_ID, wanted)])


def fetch_response(partitions: int, size: int) -> FetchResponse:
    records = bytes(size)
    data = [PartitionData(index, 0, 100, 100, 0, records=records) for index in range(partitions)]
    return FetchResponse(responses=[FetchableTopicResponse("", TOPIC_ID, data)])


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    def topic(number: int) -> MetadataResponseTopic:
        parts = [MetadataResponsePartition(0, i, 1, 3, [1, 2, 3], [1, 2, 3], []) for i in range(partitions)]
        return MetadataResponseTopic(0, f"topic-{number}", TOPIC_ID, False, parts)

    brokers = [MetadataResponseBroker(i, f"broker-{i}.example", 9092, None) for i in range(3)]
    return MetadataResponse(0, brokers, "cluster", 1, [topic(number) for number in range(topics)])


CASES: list[tuple[str, ApiKey, int, Message]] = [
    ("Produce request, 1 partition, 1 KB", ApiKey.PRODUCE, 13, produce_request(1, 1024)),
    ("Produce request, 6 partitions, 128 KB each", ApiKey.PRODUCE, 13, produce_request(6, 131_072)),
    ("Produce request, classic, 1 partition", ApiKey.PRODUCE, 8, produce_request(1, 1024, by_name=True)),
    ("Produce response, 1 partition", ApiKey.PRODUCE, 13, produce_response(1)),
    ("Produce response, 6 partitions", ApiKey.PRODUCE, 13, produce_response(6)),
    ("Fetch request, no partitions (session)", ApiKey.FETCH, 17, FetchRequest(max_wait_ms=500)),
    ("Fetch request, 6 partitions", ApiKey.FETCH, 17, fetch_request(6)),
    ("Fetch response, 6 partitions, 64 KB each", ApiKey.FETCH, 17, fetch_response(6, 65_536)),
    ("Fetch response, 100 empty partitions", ApiKey.FETCH, 17, fetch_response(100, 0)),
    ("Metadata request, all topics", ApiKey.METADATA, 12, MetadataRequest(topics=None)),
    ("Metadata response, 1 topic, 6 partitions", ApiKey.METADATA, 12, metadata_response(1, 6)),
    ("Metadata response, 100 topics, 10 partitions", ApiKey.METADATA, 12, metadata_response(100, 10)),
]


def best_us(call: Callable[[], object], rounds: int) -> float:
    began = perf_counter()
    call()
    once = perf_counter() - began
    repeats = max(1, min(20_000, int(0.02 / max(once, 1e-7))))
    best = float("inf")
    for _ in range(rounds):
        began = perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (perf_counter() - began) / repeats)
    return best * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    print(f"{'µs per message':<46} {'decode':>9} {'encode':>9}")
    for title, key, version, message in CASES:
        decode_us, encode_us = measure(API[key], version, message, rounds)
        print(f"{title + f' (v{version})':<46} {decode_us:9.2f} {encode_us:9.2f}")
    api = API[ApiKey.PRODUCE]
    (frame,) = request_parts(api, 13, 1, "producer-1", produce_request(1, 10))
    assert isinstance(frame, bytes)
    body = bytearray(frame[4:])
    print(f"{'request header':<46} {best_us(lambda: decode_header(body), rounds):9.2f}")


def measure(api: Api, version: int, message: Message, rounds: int) -> tuple[float, float]:
    data = bytearray(encode_bytes(message, version))
    decode_us = best_us(lambda: decode(type(message), version, data), rounds)
    encode_us = best_us(lambda: response_parts(1, api, version, message), rounds)
    return decode_us, encode_us


if __name__ == "__main__":
    main()
