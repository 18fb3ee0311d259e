"""Admin requests to one node of a cluster, each on a blocking connection of its own.

Every function takes the address of a node, so that a test chooses it: a follower must respond as the leader does. A
request is sent in the newest version that both sides support, so the node may be ours (any revision) or Apache Kafka.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cluster.connection import Connection, ConnectionClosed
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from strandline.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.protocol.types import Message

TOPIC, BROKER, GROUP = 2, 4, 32
# Long enough for a busy machine.
TIMEOUT_S = 60.0
T = TypeVar("T")

_marks = itertools.count()


class RequestFailed(Exception):
    """The response has an error code."""

    def __init__(self, code: int, why: str | None) -> None:
        super().__init__(f"{ErrorCode(code).name}: {why}")
        self.code = ErrorCode(code)


def call(address: str, request: Message, *, timeout_s: float = 30.0) -> Any:
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port), timeout_s)
    try:
        return connection.call(request, _version(address, request))
    finally:
        connection.close()


def _version(address: str, request: Message) -> int:
    assert request.api_key is not None
    if request.api_key == ApiVersionsRequest.api_key:
        return 3
    newest = advertised(address)[request.api_key]
    return min(newest, API[request.api_key].advertised_max_version)


@functools.lru_cache(maxsize=256)
def advertised(address: str) -> Mapping[int, int]:
    """The newest version of each API at this address. Ports are not reused, so the response can be cached."""
    response: ApiVersionsResponse = call(address, ApiVersionsRequest("script", "1"))
    return {each.api_key: each.max_version for each in response.api_keys}


def create_topic(
    address: str,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 20_000,
) -> None:
    entries = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)
    response = call(
        address, CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), timeout_s=timeout_ms / 1000 + 1
    )
    result = response.topics[0]
    if result.error_code:
        raise RequestFailed(result.error_code, result.error_message)


def set_config(address: str, resource_type: int, name: str, key: str, value: str, *, timeout_s: float = 30.0) -> None:
    setting = IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[setting]
    )
    response = call(address, IncrementalAlterConfigsRequest(resources=[resource]), timeout_s=timeout_s)
    result = response.responses[0]
    if result.error_code:
        raise RequestFailed(result.error_code, result.error_message)


def topics(address: str) -> dict[str, Any]:
    response: MetadataResponse = call(address, MetadataRequest(topics=None))
    return {topic.name or "": topic for topic in response.topics}


def live_brokers(address: str) -> set[int]:
    """The brokers in this broker's Metadata response; none if it does not respond yet."""
    try:
        response: MetadataResponse = call(address, MetadataRequest(topics=[]), timeout_s=20.0)
    except (OSError, ConnectionClosed):
        return set()
    return {broker.node_id for broker in response.brokers}


def describe_quorum(address: str, *, timeout_s: float = 30.0) -> DescribeQuorumResponsePartitionData:
    """Sent to a broker or to the active controller; any other controller rejects it."""
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    response = call(address, DescribeQuorumRequest(topics=[topic]), timeout_s=timeout_s)
    if response.error_code:
        raise RequestFailed(response.error_code, response.error_message)
    described: DescribeQuorumResponsePartitionData = response.topics[0].partitions[0]
    if described.error_code:
        raise RequestFailed(described.error_code, described.error_message)
    return described


def eventually(read: Callable[[], T], wanted: Callable[[T], bool] = bool, *, within_s: float = TIMEOUT_S) -> T:
    """The first value that is as wanted; retries while the node is unavailable or returns an error."""
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = value = read()
            if wanted(value):
                return value
        except (OSError, ConnectionClosed, RequestFailed) as error:
            last = error
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s:g} s; last seen: {last!r}")


def wait_until_replayed_by_all(brokers: Sequence[str]) -> None:
    """Returns when each of these brokers has replayed every change that was committed before the call.

    A controller responds when a change is committed; each broker replays it later. Metadata is one log: a broker that
    has replayed the change made here, the last one, has replayed all changes before it."""
    key, group = "consumer.session.timeout.ms", "replayed-by-all"
    mark = str(45_000 + next(_marks) % 15_000)
    eventually(lambda: set_config(brokers[0], GROUP, group, key, mark), lambda _: True)
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[key])
    request = DescribeConfigsRequest(resources=[resource])
    for broker in brokers:
        eventually(
            lambda broker=broker: [each.value for each in call(broker, request).results[0].configs],  # type: ignore[misc]
            lambda values: values == [mark],
        )
