"""Internal topics: created when a coordinator is first looked for, with configs of their own.

Where the replication factor is configured it is obeyed, and creation fails until that many brokers are registered, as
in Kafka. Where it is not, it is fitted to the registered brokers, up to Kafka's default of three.
"""

from __future__ import annotations

from typing import Final

import msgspec

from strandline.coordinator.partitioning import GROUP_TOPIC, TRANSACTION_TOPIC
from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class _InternalTopic(msgspec.Struct, frozen=True):
    """Names of the broker keys that its configs come from."""

    partitions: str
    replication_factor: str
    min_isr: str | None
    configs: dict[str, str]
    """Topic config → broker key, or a literal value in quotes."""


_TOPICS: Final = {
    GROUP_TOPIC: _InternalTopic(
        partitions="offsets.topic.num.partitions",
        replication_factor="offsets.topic.replication.factor",
        min_isr=None,
        configs={
            "cleanup.policy": "'compact'",
            "compression.type": "'producer'",
            "segment.bytes": "offsets.topic.segment.bytes",
        },
    ),
    TRANSACTION_TOPIC: _InternalTopic(
        partitions="transaction.state.log.num.partitions",
        replication_factor="transaction.state.log.replication.factor",
        min_isr="transaction.state.log.min.isr",
        configs={
            "cleanup.policy": "'compact'",
            "compression.type": "'uncompressed'",
            "segment.bytes": "transaction.state.log.segment.bytes",
            "unclean.leader.election.enable": "'false'",
        },
    ),
}


async def ensure_internal_topic(broker: BrokerContext, call: Call, name: str) -> None:
    """Creates the topic if there is none. Raises COORDINATOR_NOT_AVAILABLE when that failed."""
    if broker.view.topic(name) is not None:
        return
    call.park()
    request = CreateTopicsRequest(topics=[_creatable(broker, name)], timeout_ms=broker.config.get("request.timeout.ms"))
    response = await broker.controller.forward(
        call, request, CreateTopicsResponse, version=CreateTopicsRequest.versions[1]
    )
    result = response.topics[0]
    if code_of(result.error_code) not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {result.error_message or 'unknown reason'}"
        )


def _creatable(broker: BrokerContext, name: str) -> CreatableTopic:
    topic, get = _TOPICS[name], broker.config.get
    configs = {
        config: key.strip("'") if key.startswith("'") else str(get(key)) for config, key in topic.configs.items()
    }
    replication_factor = get(topic.replication_factor)
    if not _is_configured(broker, topic.replication_factor):
        replication_factor = max(1, min(replication_factor, len(broker.view.brokers())))
    if topic.min_isr is not None:
        min_isr = get(topic.min_isr)
        if not _is_configured(broker, topic.min_isr):
            min_isr = min(min_isr, replication_factor)
        configs["min.insync.replicas"] = str(min_isr)
    return CreatableTopic(
        name=name,
        num_partitions=get(topic.partitions),
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(config, value) for config, value in configs.items()],
    )


def _is_configured(broker: BrokerContext, key: str) -> bool:
    layers = broker.config.layers()
    return any(key in layer for layer in (layers.dynamic, layers.cluster, layers.static))
