"""One script, run in one version of its API against one node, with every response recorded under a label.

A run creates topics of its own. Values that differ between two runs (ids, ports, times, wording) are rendered as
placeholders, so that the transcripts of our node and of Apache Kafka can be compared as text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster.connection import TIMEOUT_S, Connection, ConnectionClosed
from cluster.handlers.rendering import Names, render
from cluster.record_batches import produce
from strandline.model.ids import Uuid
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.protocol.types import Message

# The configs of the node under test, ours or Apache Kafka's.
SETTINGS = {
    "num.partitions": "2",
    "max.request.partition.size.limit": "5",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.rack": "shelf",
}
UNKNOWN_TOPIC_ID = Uuid(b"unknown topic id")
# Reasons why our response differs from Kafka's (docs/SUPPORTED.md).
SPECIFIC_ERROR = "invalid requests get a specific error"
CONTROLLER_THROWS = "Kafka's controller advertises this API and throws an exception"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    host: str
    port: int
    controller_port: int
    node_id: int
    is_kafka: bool


@dataclass(slots=True)
class RecordedResponse:
    label: str
    version: int
    text: str
    differs: str | None
    """Why our response differs from Kafka's; None if it must be the same."""


@dataclass(slots=True)
class ScriptRun:
    node: NodeAddress
    script: str
    version: int
    controller: bool = False
    """Whether requests go to the controller listener."""
    responses: list[RecordedResponse] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    _connection: Connection | None = None

    def connection(self) -> Connection:
        if self._connection is None:
            port = self.node.controller_port if self.controller else self.node.port
            self._connection = Connection(self.node.host, port)
        return self._connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def record(
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
        """Sends a request, records the response under a label and returns it; None if the node disconnected.

        `differs`: why our response differs from Kafka's. `change`: edits the response before it is recorded.
        `unordered`: lists whose order has no meaning. `mask`: fields of which only the presence is recorded."""
        at = self.version if version is None else version
        try:
            response = self.connection().call(request, at, client_id)
        except ConnectionClosed:
            self.disconnect()
            self.add(label, "closes the connection", differs)
            return None
        if change is not None:
            change(response)
        self.add(label, render(response, at, self.names, frozenset(unordered), frozenset(mask)), differs)
        return response

    def record_without_response(self, label: str, request: Message, *, differs: str | None = None) -> None:
        """Sends a request that has no response; records whether the node sent none or disconnected."""
        try:
            self.connection().send(request, self.version)
            self.connection().call(ApiVersionsRequest(), 0)
        except ConnectionClosed:
            self.disconnect()
            self.add(label, "closes the connection", differs)
        else:
            self.add(label, "sends no response", differs)

    def add(self, label: str, text: str, differs: str | None = None) -> None:
        self.responses.append(RecordedResponse(f"{self.script}: {label}", self.version, text, differs))

    # Below: requests that prepare a script. Their responses are not recorded.

    def call(self, request: Message, version: int | None = None, *, on_controller: bool = False) -> Any:
        """Returns the response, by default in the newest version and from the broker listener."""
        assert request.api_key is not None
        port = self.node.controller_port if on_controller else self.node.port
        connection = Connection(self.node.host, port)
        try:
            return connection.call(request, API[request.api_key].advertised_max_version if version is None else version)
        finally:
            connection.close()

    def name(self, short: str) -> str:
        """The full name of a topic, unique to the script and the version."""
        full = f"{self.script.replace(' ', '-')}.v{self.version}.{short}"
        self.names.strings[full] = short
        return full

    def topic(self, short: str, partitions: int = 1, **configs: str) -> str:
        """Creates a topic and waits until its partitions have leaders."""
        name = self.name(short)
        values = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in values.items()],
        )
        created = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert created.topics[0].error_code == 0, created
        self.wait_for_leaders(name, partitions)
        return name

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Waits until the broker leads the partitions: in Kafka that is later than its Metadata response says so."""
        indexes = [ListOffsetsPartition(partition_index=index, timestamp=-2) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=indexes)])
        self.wait_until(
            lambda: not any(each.error_code for each in self.call(request, 4).topics[0].partitions),
            f"{name} has no leader",
        )

    def wait_until_replayed(self, short: str) -> None:
        """Waits until the broker has replayed every change that the controller has committed.

        In Kafka it replays them after the controller has responded. A topic that is created last (its name says what
        was changed before) is visible only after all earlier changes."""
        self.topic(f"after-{short}")

    @staticmethod
    def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.01)

    def metadata(self, name: str) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response: MetadataResponse = self.call(request)
        return response

    def topic_id(self, name: str) -> Any:
        return self.metadata(name).topics[0].topic_id

    def append(self, name: str, *batches: bytes | bytearray, partition: int = 0) -> list[int]:
        """Appends batches one after the other with acks=all; returns their base offsets."""
        offsets = []
        for batch in batches:
            response = self.call(produce(name, batch, partition=partition), 9)
            result = response.responses[0].partition_responses[0]
            assert result.error_code == 0, result
            offsets.append(result.base_offset)
        return offsets


def versions_of(key: ApiKey) -> range:
    api = API[key]
    return range(api.min_version, api.advertised_max_version + 1)
