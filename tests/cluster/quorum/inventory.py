"""Everything that a cluster's metadata says, as plain values: what must be the same before and after.

Left out is what may change when nothing was asked for: leaders, ISRs, epochs, offsets. Two inventories of one cluster
are equal whoever serves it (our nodes of any age, Apache Kafka) and whichever broker is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.quorum.asking import BROKER, advertised, ask, quorum, topics
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.cluster import DescribeClusterRequest
from strandline.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from strandline.protocol.messages.quotas import DescribeClientQuotasRequest
from strandline.protocol.messages.scram import DescribeUserScramCredentialsRequest
from strandline.protocol.types import Message

Inventory = dict[str, Any]

# TOPIC, BROKER, BROKER (all of them), CLIENT_METRICS, GROUP: sources that stand in the metadata log.
IN_THE_LOG = {1: "topic", 2: "broker", 3: "all brokers", 7: "client metrics", 8: "group"}


def inventory(*brokers: str) -> Inventory:
    """Of a cluster with these brokers: dynamic settings of a broker are told by itself."""
    at = brokers[0]
    described = ask(at, DescribeClusterRequest())
    return {
        "cluster": described.cluster_id,
        "brokers": sorted(broker.broker_id for broker in described.brokers),
        "voters": {str(voter.replica_id): str(voter.replica_directory_id) for voter in quorum(at).current_voters},
        "features": features(at),
        "topics": {name: _topic(topic) for name, topic in sorted(topics(at).items())},
        "configs": _configs(at, brokers),
        "quotas": _quotas(at),
        "scram": _scram(at),
    }


def features(address: str) -> dict[str, int]:
    answer = ask(address, ApiVersionsRequest("script", "1"))
    return {each.name: each.max_version_level for each in answer.finalized_features}


def _topic(topic: Any) -> dict[str, Any]:
    assert topic.error_code == 0, topic
    partitions = {str(each.partition_index): each.replica_nodes for each in topic.partitions}
    return {"id": str(topic.topic_id), "internal": topic.is_internal, "replicas": dict(sorted(partitions.items()))}


def _configs(at: str, brokers: Sequence[str]) -> dict[str, dict[str, str | None]]:
    listed = ask(at, ListConfigResourcesRequest(resource_types=[2, 4, 16, 32])).config_resources
    resources = [(each.resource_type, each.resource_name) for each in listed]
    found: dict[str, dict[str, str | None]] = {}
    for kind, name in sorted({*resources, (BROKER, "")}):
        if kind != BROKER or not name:
            found |= _described(at, kind, name)
    for broker in brokers:
        for kind, name in resources:
            if kind == BROKER and name:
                found |= _described(broker, kind, name)
    return found


def _described(address: str, kind: int, name: str) -> dict[str, dict[str, str | None]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = ask(address, DescribeConfigsRequest(resources=[resource])).results
    if result.error_code and kind == BROKER:
        return {}  # another broker's: it is asked too
    assert result.error_code == 0, result
    own = {each.name: each.value for each in result.configs if each.config_source in IN_THE_LOG}
    # What a topic or a broker only inherits is told with the one it inherits from.
    if kind != BROKER or name:
        own = {each.name: each.value for each in result.configs if each.config_source in (1, 2, 7, 8)}
    return {f"{kind} {name}": dict(sorted(own.items()))} if own else {}


def _quotas(at: str) -> list[Any] | None:
    answer = _answer(at, DescribeClientQuotasRequest(components=[], strict=False))
    if answer is None:
        return None
    return sorted(
        [
            [[each.entity_type, each.entity_name or ""] for each in entry.entity],
            {value.key: value.value for value in entry.values},
        ]
        for entry in answer.entries
    )


def _scram(at: str) -> dict[str, Any] | None:
    answer = _answer(at, DescribeUserScramCredentialsRequest(users=None))
    if answer is None:
        return None
    return {
        each.user: sorted([info.mechanism, info.iterations] for info in each.credential_infos)
        for each in answer.results
    }


def _answer(address: str, request: Message) -> Any:
    """None at a node that is too old to know the question."""
    return ask(address, request) if request.api_key in advertised(address) else None
