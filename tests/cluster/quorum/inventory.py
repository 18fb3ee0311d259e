"""The metadata of a cluster as plain values, to be compared before and after an event.

Left out is what changes without a request: leaders, ISRs, epochs, offsets. Two inventories of one cluster are equal
whichever broker responds, and whether the brokers are ours (any revision) or Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.quorum.admin_requests import BROKER, advertised, call, describe_quorum, topics
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

# The sources (DescribeConfigs) of dynamic configs: of a topic, a broker, client metrics or a group; of all brokers.
OF_ITS_OWN = (1, 2, 7, 8)
OF_ALL_BROKERS = (3,)


def inventory(*brokers: str) -> Inventory:
    """Of a cluster with these brokers: each broker describes its own dynamic configs."""
    at = brokers[0]
    described = call(at, DescribeClusterRequest())
    return {
        "cluster": described.cluster_id,
        "brokers": sorted(broker.broker_id for broker in described.brokers),
        "voters": {
            str(voter.replica_id): str(voter.replica_directory_id) for voter in describe_quorum(at).current_voters
        },
        "features": features(at),
        "topics": {name: _topic(topic) for name, topic in sorted(topics(at).items())},
        "configs": _configs(at, brokers),
        "quotas": _quotas(at),
        "scram": _scram(at),
    }


def features(address: str) -> dict[str, int]:
    response = call(address, ApiVersionsRequest("script", "1"))
    return {each.name: each.max_version_level for each in response.finalized_features}


def _topic(topic: Any) -> dict[str, Any]:
    assert topic.error_code == 0, topic
    partitions = {str(each.partition_index): each.replica_nodes for each in topic.partitions}
    return {"id": str(topic.topic_id), "internal": topic.is_internal, "replicas": dict(sorted(partitions.items()))}


def _configs(at: str, brokers: Sequence[str]) -> dict[str, dict[str, str | None]]:
    listed = call(at, ListConfigResourcesRequest(resource_types=[2, 4, 16, 32])).config_resources
    resources = {(each.resource_type, each.resource_name) for each in listed} | {(BROKER, "")}
    own = {(kind, name) for kind, name in resources if kind == BROKER and name}
    found = _described(at, sorted(resources - own))
    for broker in brokers:
        found |= _described(broker, sorted(own))
    return found


def _described(address: str, resources: Sequence[tuple[int, str]]) -> dict[str, dict[str, str | None]]:
    requested = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in resources
    ]
    found: dict[str, dict[str, str | None]] = {}
    for result in call(address, DescribeConfigsRequest(resources=requested)).results:
        if result.error_code and result.resource_type == BROKER:
            continue  # another broker, which is called as well
        assert result.error_code == 0, result
        # An inherited config is listed with the resource that it is inherited from.
        sources = OF_ALL_BROKERS if (result.resource_type, result.resource_name) == (BROKER, "") else OF_ITS_OWN
        own = {each.name: each.value for each in result.configs if each.config_source in sources}
        if own:
            found[f"{result.resource_type} {result.resource_name}"] = dict(sorted(own.items()))
    return found


def _quotas(at: str) -> list[Any] | None:
    response = _call_if_supported(at, DescribeClientQuotasRequest(components=[], strict=False))
    if response is None:
        return None
    return sorted(
        [
            [[each.entity_type, each.entity_name or ""] for each in entry.entity],
            {value.key: value.value for value in entry.values},
        ]
        for entry in response.entries
    )


def _scram(at: str) -> dict[str, Any] | None:
    response = _call_if_supported(at, DescribeUserScramCredentialsRequest(users=None))
    if response is None:
        return None
    return {
        each.user: sorted([info.mechanism, info.iterations] for info in each.credential_infos)
        for each in response.results
    }


def _call_if_supported(address: str, request: Message) -> Any:
    """None if the node does not support the API (an earlier revision of ours)."""
    return call(address, request) if request.api_key in advertised(address) else None
