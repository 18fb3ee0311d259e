"""CreateTopics and DeleteTopics: names, assignments, configs, ids."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import UNKNOWN_TOPIC_ID, ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)

SHOWN = ("cleanup.policy", "retention.ms", "min.insync.replicas", "segment.bytes")


def few_configs(response: CreateTopicsResponse) -> None:
    """tests/oracle/configs compares all keys; here a few show the values and sources in the response."""
    for topic in response.topics:
        if topic.configs:
            topic.configs = sorted((each for each in topic.configs if each.name in SHOWN), key=lambda each: each.name)


class TopicCreation:
    def __init__(self, run: ScriptRun) -> None:
        self.run = run

    def record(self, label: str, *topics: CreatableTopic, validate: bool = False, timeout_ms: int = 10_000) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate)
        self.run.record(label, request, change=few_configs, unordered={"topics"})

    def topic(self, name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def configs(**values: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]


def assigned(*replicas: list[int], first: int = 0) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]


@script(ApiKey.CREATE_TOPICS, Listeners.BOTH)
def topics_created(run: ScriptRun) -> None:
    creation = TopicCreation(run)
    creation.record("one", creation.topic(run.name("t")))
    creation.record("the same again", creation.topic(run.name("t")))
    creation.record("the same again, validated only", creation.topic(run.name("t")), validate=True)
    creation.record("validated only", creation.topic(run.name("v"), 3), validate=True)
    creation.record("three partitions", creation.topic(run.name("three"), 3))
    creation.record("two topics", creation.topic(run.name("a")), creation.topic(run.name("b"), 2))
    creation.record("the same name twice", creation.topic(run.name("twice")), creation.topic(run.name("twice"), 2))
    creation.record("one good, one bad", creation.topic(run.name("good")), creation.topic(run.name("bad"), 0))
    creation.record("an empty request")
    creation.record("the defaults", creation.topic(run.name("defaults"), -1, -1))
    for partitions in (0, -2, 2**31 - 1):
        creation.record(f"{partitions} partitions", creation.topic(run.name("wrong"), partitions))
    for replicas in (0, -2, 2, 32767):
        creation.record(f"{replicas} replicas", creation.topic(run.name("wrong"), 1, replicas))
    creation.record("timeout 0", creation.topic(run.name("hasty")), timeout_ms=0)
    creation.record("a negative timeout", creation.topic(run.name("hastier")), timeout_ms=-1)


@script(ApiKey.CREATE_TOPICS)
def names_of_new_topics(run: ScriptRun) -> None:
    creation = TopicCreation(run)
    for illegal in ("", ".", "..", "../x", "a/b", "a b", "a\0b", "é", "x" * 250, "__cluster_metadata"):
        creation.record(f"{illegal[:20]!r}", creation.topic(illegal), validate=True)
    creation.record("of the maximum length", creation.topic(run.name("x" * 200)), validate=True)
    creation.record("with a dot", creation.topic(run.name("a.b")))
    colliding = run.name("a.b").replace("a.b", "a_b")
    run.names.strings[colliding] = "a_b"
    creation.record("with an underscore in its place", creation.topic(colliding))
    creation.record("two that collide", creation.topic(run.name("c.d")), creation.topic(run.name("c_d")))
    creation.record("of an internal topic", creation.topic("__share_group_state"), validate=True)


@script(ApiKey.CREATE_TOPICS)
def assignments_of_new_topics(run: ScriptRun) -> None:
    creation = TopicCreation(run)

    def record(label: str, *replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0) -> None:
        topic = creation.topic(run.name(label.replace(" ", "-")), partitions, factor)
        topic.assignments = assigned(*replicas, first=first)
        creation.record(label, topic)

    record("two partitions", [1], [1])
    record("and a number of partitions", [1], partitions=1)
    record("and a number of replicas", [1], factor=1)
    record("to no broker", [])
    record("to an unknown broker", [9])
    record("to the same broker twice", [1, 1])
    record("to a negative broker id", [-1])
    record("not from 0", [1], first=1)
    record("of different lengths", [1], [1, 2])
    topic = creation.topic(run.name("same"), -1, -1)
    topic.assignments = assigned([1]) + assigned([1])
    creation.record("the same partition twice", topic)


@script(ApiKey.CREATE_TOPICS)
def configs_of_new_topics(run: ScriptRun) -> None:
    creation = TopicCreation(run)

    def record(label: str, **values: str | None) -> None:
        creation.record(label, creation.topic(run.name(label.replace(" ", "-")), configs=configs(**values)))

    record("good", retention_ms="1000", cleanup_policy="compact")
    record("with blanks", cleanup_policy=" compact , delete ")
    record("unknown key", no_such_key="1")
    record("no number", retention_ms="soon")
    record("too small", segment_bytes="1")
    record("null", retention_ms=None)
    record("empty", retention_ms="")
    record("no policy", cleanup_policy="")
    record("bad policy", cleanup_policy="burn")
    record("bad codec", compression_type="zip")
    record("contradiction", min_insync_replicas="0")
    twice = creation.topic(run.name("twice"), configs=configs(retention_ms="1") + configs(retention_ms="2"))
    creation.record("a key twice", twice)


@script(ApiKey.DELETE_TOPICS, Listeners.BOTH)
def topics_deleted(run: ScriptRun) -> None:
    def record(label: str, *topics: tuple[str | None, Uuid]) -> None:
        request = DeleteTopicsRequest(timeout_ms=10_000)
        if run.version >= 6:
            request.topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
        else:
            request.topic_names = [name for name, _ in topics if name is not None]
        run.record(label, request, unordered={"responses"})

    for short in ("a", "b", "c", "d"):
        run.topic(short)
    record("an empty request")
    record("one", (run.name("a"), ZERO_UUID))
    record("the same again", (run.name("a"), ZERO_UUID))
    record("an unknown topic", (run.name("nowhere"), ZERO_UUID))
    record("an invalid name", ("../x", ZERO_UUID))
    record("an empty name", ("", ZERO_UUID))
    record("the metadata log", ("__cluster_metadata", ZERO_UUID))
    record("the same twice", (run.name("b"), ZERO_UUID), (run.name("b"), ZERO_UUID))
    record("one known, one unknown", (run.name("c"), ZERO_UUID), (run.name("nowhere"), ZERO_UUID))
    if run.version >= 6:
        d = run.topic_id(run.name("d"))
        record("an unknown id", (None, UNKNOWN_TOPIC_ID))
        record("an id and a name", (run.name("d"), d))
        record("neither", (None, ZERO_UUID))
        record("the same id twice", (None, d), (None, d))
        record("the same by name and by id", (None, d), (run.name("d"), ZERO_UUID))
        record("by id", (None, d))
        record("by id, again", (None, d))


@script(ApiKey.DELETE_TOPICS)
def deleted_name_reused(run: ScriptRun) -> None:
    name = run.topic("t")
    request = DeleteTopicsRequest(timeout_ms=10_000)
    if run.version >= 6:
        request.topics = [DeleteTopicState(name=name)]
    else:
        request.topic_names = [name]
    run.record("delete", request)
    run.topic("t", 2)
    run.record("delete again", request)
