"""Questions to any node of a cluster, one blocking connection each: what the tests of this directory do and look at.

Every function takes the address of a node, so that a test says whom it asks: a follower must answer as the leader does.
It speaks in the newest version that both sides know, so the node may be one of ours (of any age) or Apache Kafka.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cluster.handlers.talk import Closed, Wire
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
# As long as a busy machine may need: whoever waits for less fails for want of a processor.
PATIENCE_S = 60.0
T = TypeVar("T")

_marks = itertools.count()


class Refused(Exception):
    """The node answered with an error code."""

    def __init__(self, code: int, why: str | None) -> None:
        super().__init__(f"{ErrorCode(code).name}: {why}")
        self.code = ErrorCode(code)


def ask(address: str, request: Message, *, timeout_s: float = 30.0) -> Any:
    host, _, port = address.rpartition(":")
    wire = Wire(host, int(port), timeout_s)
    try:
        return wire.ask(request, _version(address, request))
    finally:
        wire.close()


def _version(address: str, request: Message) -> int:
    assert request.api_key is not None
    if request.api_key == ApiVersionsRequest.api_key:
        return 3
    newest = advertised(address)[request.api_key]
    return min(newest, API[request.api_key].advertised_max_version)


@functools.lru_cache(maxsize=256)
def advertised(address: str) -> Mapping[int, int]:
    """The newest version of each API at this address. Ports are not used again, so the answer may be kept."""
    answer: ApiVersionsResponse = ask(address, ApiVersionsRequest("script", "1"))
    return {each.api_key: each.max_version for each in answer.api_keys}


def create_topic(
    address: str,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 20_000,
) -> None:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
    answer = ask(address, CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), timeout_s=timeout_ms / 1000 + 1)
    result = answer.topics[0]
    if result.error_code:
        raise Refused(result.error_code, result.error_message)


def set_config(address: str, resource_type: int, name: str, key: str, value: str, *, timeout_s: float = 30.0) -> None:
    setting = IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[setting]
    )
    answer = ask(address, IncrementalAlterConfigsRequest(resources=[resource]), timeout_s=timeout_s)
    result = answer.responses[0]
    if result.error_code:
        raise Refused(result.error_code, result.error_message)


def topics(address: str) -> dict[str, Any]:
    answer: MetadataResponse = ask(address, MetadataRequest(topics=None))
    return {topic.name or "": topic for topic in answer.topics}


def live_brokers(address: str) -> set[int]:
    """Those that this broker takes for alive; none if it does not answer yet."""
    try:
        answer: MetadataResponse = ask(address, MetadataRequest(topics=[]), timeout_s=20.0)
    except (OSError, Closed):
        return set()
    return {broker.node_id for broker in answer.brokers}


def quorum(address: str, *, timeout_s: float = 30.0) -> DescribeQuorumResponsePartitionData:
    """As its leader sees it, asked at a broker or at a controller; a controller that does not lead refuses."""
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    answer = ask(address, DescribeQuorumRequest(topics=[topic]), timeout_s=timeout_s)
    if answer.error_code:
        raise Refused(answer.error_code, answer.error_message)
    described: DescribeQuorumResponsePartitionData = answer.topics[0].partitions[0]
    if described.error_code:
        raise Refused(described.error_code, described.error_message)
    return described


def eventually(question: Callable[[], T], wanted: Callable[[T], bool] = bool, *, within_s: float = PATIENCE_S) -> T:
    """The first answer that is as wanted. A node that is not there, or refuses, is asked again."""
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = answer = question()
            if wanted(answer):
                return answer
        except (OSError, Closed, Refused) as error:
            last = error
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s:g} s; last seen: {last!r}")


def heard_by_all(brokers: Sequence[str]) -> None:
    """Back when each of these brokers knows of everything that was decided before.

    A controller's answer says that a change is committed; brokers replay it a moment later, each in its own time, and
    clients ask whichever they like. All of metadata is one log: who knows of the change made here, the last one, knows
    of those before it."""
    key, group = "consumer.session.timeout.ms", "heard-by-all"
    mark = str(45_000 + next(_marks) % 15_000)
    eventually(lambda: set_config(brokers[0], GROUP, group, key, mark), lambda _: True)
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[key])
    question = DescribeConfigsRequest(resources=[resource])
    for broker in brokers:
        eventually(
            lambda broker=broker: [each.value for each in ask(broker, question).results[0].configs],  # type: ignore[misc]
            lambda told: told == [mark],
        )
