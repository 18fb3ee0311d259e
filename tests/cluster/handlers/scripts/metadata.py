"""Metadata: by name, by id, all of it, and topics made on demand."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

STRANGER = Uuid(b"nobody's topic i")
CREATES_FIRST = "a topic that may be created on demand is there before we answer, so that nobody need ask again"


def topics_only(answer: MetadataResponse) -> None:
    answer.brokers, answer.cluster_id, answer.controller_id = [], None, -1


def asked(*names: str | None, creates: bool = False, version: int) -> MetadataRequest:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    if version >= 4:
        request.allow_auto_topic_creation = creates
    return request


def ask(talk: Talk, label: str, request: MetadataRequest, **options: Any) -> None:
    talk.ask(label, request, **{"change": topics_only, **options})


@script(ApiKey.METADATA)
def topics_by_name(talk: Talk) -> None:
    name, other = talk.topic("t", 2), talk.topic("u")
    ask(talk, "one topic", asked(name, version=talk.version))
    ask(talk, "two topics", asked(other, name, version=talk.version), unordered={"topics"})
    ask(talk, "the same topic twice", asked(name, name, version=talk.version))
    if talk.version >= 4:
        ask(talk, "a topic that is not there", asked(talk.name("nowhere"), version=talk.version))
        ask(
            talk,
            "one that is there and one that is not",
            asked(name, talk.name("nowhere"), version=talk.version),
            unordered={"topics"},
        )
        for illegal in ("", "../x", ".", "a b", "x" * 250, "__cluster_metadata"):
            ask(talk, f"the name {illegal[:20]!r}", asked(illegal, version=talk.version))
        ask(talk, "an internal topic that is not there", asked("__share_group_state", version=talk.version))


@script(ApiKey.METADATA)
def no_topics_and_all(talk: Talk) -> None:
    name = talk.topic("t")

    def only_own(answer: MetadataResponse) -> None:
        answer.topics = [topic for topic in answer.topics if topic.name == name]

    ask(talk, "an empty list", asked(version=talk.version), change=only_own)
    if talk.version >= 1:
        ask(talk, "null, which means all", MetadataRequest(topics=None), change=only_own)


@script(ApiKey.METADATA)
def topics_created_on_demand(talk: Talk) -> None:
    for short in ("fresh", "fresher"):
        name = talk.name(short)
        ask(
            talk, f"{short}, for the first time", asked(name, creates=True, version=talk.version), differs=CREATES_FIRST
        )
        talk.wait_for(name, 2)
        ask(talk, f"{short}, after that", asked(name, creates=True, version=talk.version))
    for illegal in ("", "../x", "a b", "x" * 250):
        ask(talk, f"the name {illegal[:20]!r}", asked(illegal, creates=True, version=talk.version))
    first, second = talk.name("a.b"), talk.name("a_b")
    talk.quietly(asked(first, creates=True, version=13))
    talk.wait_for(first, 2)
    colliding = second.replace(".", "_")
    talk.names.strings[colliding] = "a_b"
    request = asked(colliding, creates=True, version=talk.version)
    ask(talk, "a name that collides with another", request, differs=CREATES_FIRST)


@script(ApiKey.METADATA)
def topics_by_id(talk: Talk) -> None:
    if talk.version < 10:
        return
    name = talk.topic("t")
    topic_id = talk.topic_id(name)

    def by_id(topic_id: Uuid, name: str | None = None) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=name)])

    ask(talk, "an id", by_id(topic_id))
    ask(talk, "an id and a name", by_id(topic_id, name))
    ask(talk, "an id and an empty name", by_id(topic_id, ""))
    ask(talk, "an id that nobody has", by_id(STRANGER))
    ask(talk, "an id that nobody has and a name", by_id(STRANGER, name))
    ask(talk, "neither id nor name", by_id(ZERO_UUID), differs="an error that has a name is told by it")
    mixed = by_id(topic_id)
    mixed.topics += [MetadataRequestTopic(name=name)]  # type: ignore[operator]
    ask(talk, "the same topic by id and by name", mixed)


@script(ApiKey.METADATA)
def authorized_operations(talk: Talk) -> None:
    if talk.version < 8:
        return
    name = talk.topic("t")
    request = asked(name, talk.name("nowhere"), version=talk.version)
    request.include_topic_authorized_operations = True
    if talk.version <= 10:
        request.include_cluster_authorized_operations = True
    ask(talk, "asked for", request, unordered={"topics"})


@script(ApiKey.METADATA)
def a_deleted_topic(talk: Talk) -> None:
    from strandline.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

    name = talk.topic("t")
    topic_id = talk.topic_id(name)
    talk.quietly(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000))
    talk.until(lambda: bool(talk.metadata(name).topics[0].error_code), f"{name} is still there")
    if talk.version >= 4:
        ask(talk, "by name", asked(name, version=talk.version))
    if talk.version >= 12:
        ask(talk, "by id", MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]))
