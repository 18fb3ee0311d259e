"""IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

import pytest

from strandline.controller.configs import APPEND, DELETE, SET, SUBTRACT, Configs
from strandline.controller.settings import ControllerSettings
from strandline.metadata.values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from unit.controller.machine_cluster import MachineCluster

Operation = tuple[str, int, str | None]


def resource(type_: int, name: str, *operations: Operation) -> IncrementalAlterConfigsRequestAlterConfigsResource:
    return IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=type_,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ],
    )


def topic(*operations: Operation) -> IncrementalAlterConfigsRequestAlterConfigsResource:
    return resource(TOPIC_RESOURCE, "t", *operations)


def scene_with_topic(**options: object) -> MachineCluster:
    cluster = MachineCluster(**options)  # type: ignore[arg-type]
    cluster.topic("t", [1])
    return cluster


def alter(
    cluster: MachineCluster, *resources: IncrementalAlterConfigsRequestAlterConfigsResource, validate_only: bool = False
) -> list[ErrorCode]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = cluster.decide(Configs(cluster.view, cluster.settings).alter_incrementally(request))
    return [ErrorCode(response.error_code) for response in response.responses]


def test_keys_are_set_deleted_and_only_written_when_they_change() -> None:
    cluster = scene_with_topic()
    assert alter(cluster, topic(("retention.ms", SET, "5"), ("segment.bytes", SET, "1048576"))) == [ErrorCode.NONE]
    assert cluster.view.topic_configs("t") == {"retention.ms": "5", "segment.bytes": "1048576"}
    before = cluster.image.end_offset
    assert alter(cluster, topic(("retention.ms", SET, "5"))) == [ErrorCode.NONE]
    assert cluster.image.end_offset == before
    assert alter(cluster, topic(("retention.ms", DELETE, None), ("index.interval.bytes", DELETE, None))) == [
        ErrorCode.NONE
    ]
    assert cluster.view.topic_configs("t") == {"segment.bytes": "1048576"}


def test_lists_are_appended_to_and_subtracted_from_their_effective_value() -> None:
    cluster = scene_with_topic()
    alter(cluster, topic(("cleanup.policy", APPEND, "compact")))
    assert cluster.view.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    alter(cluster, topic(("cleanup.policy", APPEND, "compact,delete")))
    assert cluster.view.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    alter(cluster, topic(("cleanup.policy", SUBTRACT, "delete")))
    assert cluster.view.topic_configs("t") == {"cleanup.policy": "compact"}


def test_a_list_without_a_topic_value_starts_from_the_brokers_value() -> None:
    cluster = scene_with_topic(
        settings=ControllerSettings(100, "cluster", static={"log.cleanup.policy": "compact"}),
    )
    alter(cluster, topic(("cleanup.policy", APPEND, "delete")))
    assert cluster.view.topic_configs("t") == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (resource(TOPIC_RESOURCE, "nowhere", ("retention.ms", SET, "5")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic(("no.such.key", SET, "5")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (topic(("retention.ms", 7, "1")), ErrorCode.INVALID_REQUEST),
        (topic(("retention.ms", APPEND, "5")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SUBTRACT, "5")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SET, "5"), ("retention.ms", DELETE, None)), ErrorCode.INVALID_REQUEST),
        (topic(("cleanup.policy", SUBTRACT, "delete"), ("cleanup.policy", SET, "x")), ErrorCode.INVALID_REQUEST),
        (topic(("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER_RESOURCE, "one", ("log.retention.ms", SET, "5")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER_RESOURCE, "-1", ("log.retention.ms", SET, "5")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER_RESOURCE, "9", ("log.retention.ms", SET, "5")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (resource(BROKER_RESOURCE, "1", ("log.retention.ms", SET, "soon")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER_RESOURCE, "1", ("min.insync.replicas", SET, "2")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER_RESOURCE, "", ("min.insync.replicas", DELETE, None)), ErrorCode.INVALID_CONFIG),
        (resource(GROUP_RESOURCE, "", ("consumer.session.timeout.ms", SET, "50000")), ErrorCode.INVALID_REQUEST),
        (resource(GROUP_RESOURCE, "g", ("no.such.key", SET, "1")), ErrorCode.INVALID_CONFIG),
        (resource(CLIENT_METRICS_RESOURCE, "s", ("interval.ms", SET, "often")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC_RESOURCE, "", ("retention.ms", SET, "5")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC_RESOURCE, "../x", ("retention.ms", SET, "5")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(BROKER_LOGGER_RESOURCE, "1", ("x", SET, "INFO")), ErrorCode.INVALID_REQUEST),
        (resource(99, "x", ("x", SET, "1")), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_config_is_rejected_with_its_error_code_and_nothing_is_written(
    given: IncrementalAlterConfigsRequestAlterConfigsResource, code: ErrorCode
) -> None:
    cluster = scene_with_topic()
    before = cluster.image.end_offset
    assert alter(cluster, given) == [code]
    assert cluster.image.end_offset == before


def test_an_invalid_resource_does_not_affect_the_others_and_one_given_twice_fails_twice() -> None:
    cluster = scene_with_topic()
    bad = resource(TOPIC_RESOURCE, "x", ("retention.ms", SET, "1"))
    good = resource(GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "50000"))
    assert alter(cluster, bad, good, topic(), topic()) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.view.configs(GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "50000"}


def test_validating_only_writes_nothing() -> None:
    cluster = scene_with_topic()
    assert alter(cluster, topic(("retention.ms", SET, "5")), validate_only=True) == [ErrorCode.NONE]
    assert cluster.view.topic_configs("t") == {}


def test_a_brokers_key_is_written_even_when_it_stays_the_same() -> None:
    cluster = scene_with_topic()
    own = resource(BROKER_RESOURCE, "1", ("log.retention.ms", SET, "5"))
    alter(cluster, own)
    before = cluster.image.end_offset
    alter(cluster, own)
    assert cluster.image.end_offset == before + 1
    assert cluster.view.broker_configs(1) == {"log.retention.ms": "5"}


def test_keys_of_plugins_are_accepted_on_brokers() -> None:
    cluster = scene_with_topic()
    assert alter(cluster, resource(BROKER_RESOURCE, "", ("my.plugin.key", SET, "x"))) == [ErrorCode.NONE]
    assert cluster.view.broker_configs(None) == {"my.plugin.key": "x"}


def test_a_changed_min_insync_replicas_clears_the_elr_of_the_affected_topics() -> None:
    cluster = scene_with_topic()
    configs = Configs(cluster.view, cluster.settings)
    of_topic = configs.alter_incrementally(
        IncrementalAlterConfigsRequest(resources=[topic(("min.insync.replicas", SET, "2"))])
    )
    assert of_topic.records[1:] == [ClearElrRecord(topic_name="t")]
    of_all = configs.alter_incrementally(
        IncrementalAlterConfigsRequest(resources=[resource(BROKER_RESOURCE, "", ("min.insync.replicas", SET, "2"))])
    )
    assert of_all.records[1:] == [ClearElrRecord(topic_name="")]


def test_alter_configs_replaces_all_configs_of_a_resource() -> None:
    cluster = scene_with_topic()
    alter(cluster, topic(("retention.ms", SET, "5"), ("segment.bytes", SET, "1048576")))
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequestAlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name="t",
                configs=[
                    AlterConfigsRequestAlterableConfig(name="retention.ms", value="5"),
                    AlterConfigsRequestAlterableConfig(name="max.message.bytes", value="2000"),
                ],
            )
        ]
    )
    decision = Configs(cluster.view, cluster.settings).alter(request)
    assert [(r.name, r.value) for r in decision.records if isinstance(r, ConfigRecord)] == [
        ("max.message.bytes", "2000"),
        ("segment.bytes", None),
    ]
    assert [response.error_code for response in cluster.decide(decision).responses] == [0]
    assert cluster.view.topic_configs("t") == {"retention.ms": "5", "max.message.bytes": "2000"}
