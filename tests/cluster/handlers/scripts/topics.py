"""CreateTopics and DeleteTopics: names, assignments, settings, ids."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
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

STRANGER = Uuid(b"nobody's topic i")
SHOWN = ("cleanup.policy", "retention.ms", "min.insync.replicas", "segment.bytes")


def few_configs(answer: CreateTopicsResponse) -> None:
    """All keys are compared elsewhere (tests/oracle/settings); here a few show what comes back, and where from."""
    for topic in answer.topics:
        if topic.configs:
            topic.configs = sorted((each for each in topic.configs if each.name in SHOWN), key=lambda each: each.name)


class Maker:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    def ask(self, label: str, *topics: CreatableTopic, validate: bool = False, timeout_ms: int = 10_000) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate)
        self.talk.ask(label, request, change=few_configs, unordered={"topics"})

    def topic(self, name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def configs(**values: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]


def assigned(*replicas: list[int], first: int = 0) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]


@script(ApiKey.CREATE_TOPICS, Asked.BOTH)
def topics_created(talk: Talk) -> None:
    make = Maker(talk)
    make.ask("one", make.topic(talk.name("t")))
    make.ask("the same again", make.topic(talk.name("t")))
    make.ask("the same again, validated only", make.topic(talk.name("t")), validate=True)
    make.ask("validated only", make.topic(talk.name("v"), 3), validate=True)
    make.ask("three partitions", make.topic(talk.name("three"), 3))
    make.ask("two topics", make.topic(talk.name("a")), make.topic(talk.name("b"), 2))
    make.ask("the same name twice", make.topic(talk.name("twice")), make.topic(talk.name("twice"), 2))
    make.ask("one good, one bad", make.topic(talk.name("good")), make.topic(talk.name("bad"), 0))
    make.ask("nothing")
    make.ask("the defaults", make.topic(talk.name("defaults"), -1, -1))
    for partitions in (0, -2, 2**31 - 1):
        make.ask(f"{partitions} partitions", make.topic(talk.name("wrong"), partitions))
    for replicas in (0, -2, 2, 32767):
        make.ask(f"{replicas} replicas", make.topic(talk.name("wrong"), 1, replicas))
    make.ask("no time", make.topic(talk.name("hasty")), timeout_ms=0)
    make.ask("time below zero", make.topic(talk.name("hastier")), timeout_ms=-1)


@script(ApiKey.CREATE_TOPICS)
def names_of_new_topics(talk: Talk) -> None:
    make = Maker(talk)
    for illegal in ("", ".", "..", "../x", "a/b", "a b", "a\0b", "é", "x" * 250, "__cluster_metadata"):
        make.ask(f"{illegal[:20]!r}", make.topic(illegal), validate=True)
    make.ask("as long as can be", make.topic(talk.name("x" * 200)), validate=True)
    make.ask("with a dot", make.topic(talk.name("a.b")))
    colliding = talk.name("a.b").replace("a.b", "a_b")
    talk.names.strings[colliding] = "a_b"
    make.ask("with an underscore in its place", make.topic(colliding))
    make.ask("two that collide", make.topic(talk.name("c.d")), make.topic(talk.name("c_d")))
    make.ask("of an internal topic", make.topic("__share_group_state"), validate=True)


@script(ApiKey.CREATE_TOPICS)
def assignments_of_new_topics(talk: Talk) -> None:
    make = Maker(talk)

    def ask(label: str, *replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0) -> None:
        topic = make.topic(talk.name(label.replace(" ", "-")), partitions, factor)
        topic.assignments = assigned(*replicas, first=first)
        make.ask(label, topic)

    ask("two partitions", [1], [1])
    ask("and a number of partitions", [1], partitions=1)
    ask("and a number of replicas", [1], factor=1)
    ask("to nobody", [])
    ask("to a broker that is not there", [9])
    ask("to the same broker twice", [1, 1])
    ask("to a broker below zero", [-1])
    ask("not from 0", [1], first=1)
    ask("of different lengths", [1], [1, 2])
    topic = make.topic(talk.name("same"), -1, -1)
    topic.assignments = assigned([1]) + assigned([1])
    make.ask("the same partition twice", topic)


@script(ApiKey.CREATE_TOPICS)
def settings_of_new_topics(talk: Talk) -> None:
    make = Maker(talk)

    def ask(label: str, **values: str | None) -> None:
        make.ask(label, make.topic(talk.name(label.replace(" ", "-")), configs=configs(**values)))

    ask("good", retention_ms="1000", cleanup_policy="compact")
    ask("with blanks", cleanup_policy=" compact , delete ")
    ask("unknown key", no_such_key="1")
    ask("no number", retention_ms="soon")
    ask("too small", segment_bytes="1")
    ask("null", retention_ms=None)
    ask("empty", retention_ms="")
    ask("no policy", cleanup_policy="")
    ask("bad policy", cleanup_policy="burn")
    ask("bad codec", compression_type="zip")
    ask("contradiction", min_insync_replicas="0")
    twice = make.topic(talk.name("twice"), configs=configs(retention_ms="1") + configs(retention_ms="2"))
    make.ask("a key twice", twice)


@script(ApiKey.DELETE_TOPICS, Asked.BOTH)
def topics_deleted(talk: Talk) -> None:
    def ask(label: str, *topics: tuple[str | None, Uuid]) -> None:
        request = DeleteTopicsRequest(timeout_ms=10_000)
        if talk.version >= 6:
            request.topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
        else:
            request.topic_names = [name for name, _ in topics if name is not None]
        talk.ask(label, request, unordered={"responses"})

    for short in ("a", "b", "c", "d"):
        talk.topic(short)
    ask("nothing")
    ask("one", (talk.name("a"), ZERO_UUID))
    ask("the same again", (talk.name("a"), ZERO_UUID))
    ask("one that is not there", (talk.name("nowhere"), ZERO_UUID))
    ask("an illegal name", ("../x", ZERO_UUID))
    ask("an empty name", ("", ZERO_UUID))
    ask("the metadata log", ("__cluster_metadata", ZERO_UUID))
    ask("the same twice", (talk.name("b"), ZERO_UUID), (talk.name("b"), ZERO_UUID))
    ask("one that is there and one that is not", (talk.name("c"), ZERO_UUID), (talk.name("nowhere"), ZERO_UUID))
    if talk.version >= 6:
        d = talk.topic_id(talk.name("d"))
        ask("an id that nobody has", (None, STRANGER))
        ask("an id and a name", (talk.name("d"), d))
        ask("neither", (None, ZERO_UUID))
        ask("the same id twice", (None, d), (None, d))
        ask("the same by name and by id", (None, d), (talk.name("d"), ZERO_UUID))
        ask("by id", (None, d))
        ask("by id, again", (None, d))


@script(ApiKey.DELETE_TOPICS)
def a_name_used_again(talk: Talk) -> None:
    name = talk.topic("t")
    request = DeleteTopicsRequest(timeout_ms=10_000)
    if talk.version >= 6:
        request.topics = [DeleteTopicState(name=name)]
    else:
        request.topic_names = [name]
    talk.ask("delete", request)
    talk.topic("t", 2)
    talk.ask("delete again", request)
