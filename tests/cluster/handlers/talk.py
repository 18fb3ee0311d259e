"""Talking to a node over a real socket, in any version of any API, and writing down what it said.

A `Talk` is one script run in one version against one node: it makes topics of its own, asks, and notes every answer
under a label. The node may be ours or Apache Kafka; what must differ between two runs (ids, ports, times, wording) is
rendered as what it means, so that transcripts of both can be compared as text.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster.handlers.rendering import Names, render
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_response_header, request_parts
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.types import Message
from strandline.records.batch import Record, encode_batch

TIMEOUT_S = 60
# The time of the first record of every batch: transcripts must not depend on when they were made. Kafka looks up
# times only among records younger than retention.ms, which topics of scripts set to "for ever".
EPOCH_MS = 1_700_000_000_000

# How the nodes are set up, ours and Apache Kafka alike.
SETTINGS = {
    "num.partitions": "2",
    "max.request.partition.size.limit": "5",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.rack": "shelf",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A node to talk to."""

    host: str
    port: int
    controller_port: int
    node_id: int
    is_kafka: bool


class Closed(Exception):
    """The node closed the connection instead of answering."""


class Wire:
    """One blocking connection."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)

    def ask(self, request: Message, version: int, client_id: str | None = "script") -> Any:
        correlation_id = self.tell(request, version, client_id)
        return self.hear(request, version, correlation_id)

    def tell(self, request: Message, version: int, client_id: str | None = "script") -> int:
        correlation_id = next(self._ids)
        try:
            self.socket.sendall(framed(request, version, correlation_id, client_id))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        return correlation_id

    def hear(self, request: Message, version: int, correlation_id: int) -> Any:
        assert request.api_key is not None
        api = API[request.api_key]
        frame = self.frame()
        answered, position = decode_response_header(frame, api, version)
        assert answered == correlation_id, f"answer {answered} to question {correlation_id}"
        message, end = decode(api.response, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes are left after {type(message).__name__} v{version}"
        return message

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self.socket.recv(min(size - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise Closed from error
            if not chunk:
                raise Closed
            received += chunk
        return bytes(received)

    def close(self) -> None:
        self.socket.close()


def framed(request: Message, version: int, correlation_id: int = 1, client_id: str | None = "script") -> bytes:
    assert request.api_key is not None
    parts = request_parts(API[request.api_key], version, correlation_id, client_id, request)
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))


@dataclass(slots=True)
class Note:
    label: str
    version: int
    said: str
    differs: str | None


@dataclass(slots=True)
class Talk:
    target: Target
    script: str
    version: int
    controller: bool = False
    notes: list[Note] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    _wire: Wire | None = None

    def wire(self) -> Wire:
        if self._wire is None:
            port = self.target.controller_port if self.controller else self.target.port
            self._wire = Wire(self.target.host, port)
        return self._wire

    def disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def ask(
        self,
        label: str,
        request: Message,
        *,
        version: int | None = None,
        client_id: str | None = "script",
        differs: str | None = None,
        change: Callable[[Any], object] | None = None,
        unordered: Iterable[str] = (),
        mask: Iterable[str] = (),
    ) -> Any:
        """Notes the answer under a label and gives it; None when the node closed the connection.

        `differs`: why Kafka answers otherwise. `change`: edits the answer before it is noted. `unordered`: lists whose
        order means nothing. `mask`: fields that are noted as present only."""
        at = self.version if version is None else version
        try:
            answer = self.wire().ask(request, at, client_id)
        except Closed:
            self.disconnect()
            self.note(label, "closes the connection", differs)
            return None
        if change is not None:
            change(answer)
        self.note(label, render(answer, at, self.names, frozenset(unordered), frozenset(mask)), differs)
        return answer

    def tell(self, label: str, request: Message, *, differs: str | None = None) -> None:
        """For a request without an answer: notes whether there is really none, or the connection is closed."""
        try:
            self.wire().tell(request, self.version)
            probe = ApiVersionsRequest()
            self.wire().ask(probe, 0)
        except Closed:
            self.disconnect()
            self.note(label, "closes the connection", differs)
        else:
            self.note(label, "does not answer", differs)

    def note(self, label: str, said: str, differs: str | None = None) -> None:
        self.notes.append(Note(f"{self.script}: {label}", self.version, said, differs))

    # What scripts need before they can ask.

    def quietly(self, request: Message, version: int | None = None, *, on_controller: bool = False) -> Any:
        """An answer that is not noted, in the newest version unless told."""
        assert request.api_key is not None
        port = self.target.controller_port if on_controller else self.target.port
        wire = Wire(self.target.host, port)
        try:
            return wire.ask(request, API[request.api_key].advertised_max_version if version is None else version)
        finally:
            wire.close()

    def name(self, short: str) -> str:
        """The full name of a topic: every script in every version has its own."""
        full = f"{self.script.replace(' ', '-')}.v{self.version}.{short}"
        self.names.strings[full] = short
        return full

    def topic(self, short: str, partitions: int = 1, assignments: bool = False, **configs: str) -> str:
        """Makes a topic and waits until it is led."""
        name = self.name(short)
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        created = self.quietly(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=-1 if assignments else partitions,
                        replication_factor=-1 if assignments else 1,
                        assignments=[
                            CreatableReplicaAssignment(partition_index=index, broker_ids=[self.target.node_id])
                            for index in range(partitions if assignments else 0)
                        ],
                        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
                    )
                ],
                timeout_ms=30_000,
            )
        )
        assert created.topics[0].error_code == 0, created
        self.wait_for(name, partitions)
        return name

    def wait_for(self, name: str, partitions: int) -> None:
        """Kafka's leaders learn of their office after clients do, so they are asked themselves."""
        question = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-2) for index in range(partitions)
                    ],
                )
            ],
        )
        self.until(
            lambda: not any(each.error_code for each in self.quietly(question, 4).topics[0].partitions),
            f"{name} is not led",
        )

    def settle(self, short: str) -> None:
        """Kafka's brokers learn a moment later what its controller has answered. Once they have a topic that was made
        last (it is called after whatever was changed), they have all that was changed before."""
        self.topic(f"after-{short}")

    @staticmethod
    def until(fact: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not fact():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.01)

    def metadata(self, name: str) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        known: MetadataResponse = self.quietly(request)
        return known

    def topic_id(self, name: str) -> Any:
        return self.metadata(name).topics[0].topic_id

    def append(self, name: str, *batches: bytes | bytearray, partition: int = 0) -> list[int]:
        """Appends batches one after the other, acks=all; their base offsets."""
        offsets = []
        for batch in batches:
            answer = self.quietly(produce(name, batch, partition=partition), 9)
            result = answer.responses[0].partition_responses[0]
            assert result.error_code == 0, result
            offsets.append(result.base_offset)
        return offsets


def records(count: int, *, first_ms: int = EPOCH_MS, size: int = 1, key: str | None = "k") -> list[Record]:
    """Records one millisecond apart."""
    return [
        Record(index, first_ms + index, None if key is None else f"{key}{index}".encode(), b"v" * size, ())
        for index in range(count)
    ]


def batch(count: int = 3, *, first_ms: int = EPOCH_MS, size: int = 1, **options: Any) -> bytearray:
    return encode_batch(records(count, first_ms=first_ms, size=size), **options)


def produce(
    name: str, data: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, topic_id: Any = None
) -> ProduceRequest:
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=partition, records=data)])
    if topic_id is not None:
        topic.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def versions_of(key: ApiKey) -> range:
    api = API[key]
    return range(api.min_version, api.advertised_max_version + 1)
