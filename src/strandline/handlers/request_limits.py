"""How much one request may ask of the controller. It decides one thing after the other for the whole cluster, so what
names more than a decision can hold is refused before it gets there, however cheap each name might be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import ApiKey

_NAMED: dict[int, Callable[[Any], int]] = {
    ApiKey.CREATE_TOPICS: lambda request: len(request.topics),
    ApiKey.DELETE_TOPICS: lambda request: len(request.topics) + len(request.topic_names),
    ApiKey.CREATE_PARTITIONS: lambda request: len(request.topics),
    ApiKey.ALTER_CONFIGS: lambda request: len(request.resources),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request: len(request.resources),
    ApiKey.UPDATE_FEATURES: lambda request: len(request.feature_updates),
    ApiKey.CREATE_ACLS: lambda request: len(request.creations),
    ApiKey.DELETE_ACLS: lambda request: len(request.filters),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda request: len(request.entries),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda request: len(request.deletions) + len(request.upsertions),
    ApiKey.DESCRIBE_QUORUM: lambda request: len(request.topics),
    ApiKey.ELECT_LEADERS: lambda request: _topics_and(request.topic_partitions, "partitions"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request: _topics_and(request.topics, "partitions"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request: _topics_and(request.topics, "partition_indexes"),
}


def _topics_and(topics: Sequence[Any] | None, partitions: str) -> int:
    """A topic without partitions is a name as well. None stands for all there are, and names none."""
    return sum(max(1, len(getattr(topic, partitions))) for topic in topics or ())


def check_request_limit(key: ApiKey, request: Any) -> None:
    count = _NAMED.get(key)
    if count is not None and count(request) > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{count(request)} are more than the {MAX_RECORDS_PER_DECISION} that one request may name: ask in portions",
        )
