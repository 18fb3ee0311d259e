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

# Where a setting stands in the metadata log: with a topic, a broker, client metrics or a group; or with all brokers.
OF_ITS_OWN = (1, 2, 7, 8)
OF_ALL_BROKERS = (3,)


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
    resources = {(each.resource_type, each.resource_name) for each in listed} | {(BROKER, "")}
    own = {(kind, name) for kind, name in resources if kind == BROKER and name}
    found = _described(at, sorted(resources - own))
    for broker in brokers:
        found |= _described(broker, sorted(own))
    return found


def _described(address: str, resources: Sequence[tuple[int, str]]) -> dict[str, dict[str, str | None]]:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in resources
    ]
    found: dict[str, dict[str, str | None]] = {}
    for result in ask(address, DescribeConfigsRequest(resources=asked)).results:
        if result.error_code and result.resource_type == BROKER:
            continue  # another broker's: it is asked too
        assert result.error_code == 0, result
        # What a topic or a broker only inherits is told with the one it inherits from.
        sources = OF_ALL_BROKERS if (result.resource_type, result.resource_name) == (BROKER, "") else OF_ITS_OWN
        own = {each.name: each.value for each in result.configs if each.config_source in sources}
        if own:
            found[f"{result.resource_type} {result.resource_name}"] = dict(sorted(own.items()))
    return found


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
