"""Metadata: topics by name, by id, all topics, and automatic creation of topics."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import SPECIFIC_ERROR, UNKNOWN_TOPIC_ID, ScriptRun
from cluster.handlers.script_runner import script
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


def topics_only(response: MetadataResponse) -> None:
    response.brokers, response.cluster_id, response.controller_id = [], None, -1


def metadata_request(*names: str | None, auto_create: bool = False, version: int) -> MetadataRequest:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    if version >= 4:
        request.allow_auto_topic_creation = auto_create
    return request


def record(run: ScriptRun, label: str, request: MetadataRequest, **options: Any) -> None:
    run.record(label, request, **{"change": topics_only, **options})


@script(ApiKey.METADATA)
def topics_by_name(run: ScriptRun) -> None:
    name, other = run.topic("t", 2), run.topic("u")
    record(run, "one topic", metadata_request(name, version=run.version))
    record(run, "two topics", metadata_request(other, name, version=run.version), unordered={"topics"})
    record(run, "the same topic twice", metadata_request(name, name, version=run.version))
    if run.version >= 4:
        record(run, "an unknown topic", metadata_request(run.name("nowhere"), version=run.version))
        record(
            run,
            "one known, one unknown",
            metadata_request(name, run.name("nowhere"), version=run.version),
            unordered={"topics"},
        )
        for illegal in ("", "../x", ".", "a b", "x" * 250, "__cluster_metadata"):
            record(run, f"the name {illegal[:20]!r}", metadata_request(illegal, version=run.version))
        record(run, "an unknown internal topic", metadata_request("__share_group_state", version=run.version))


@script(ApiKey.METADATA)
def no_topics_and_all_topics(run: ScriptRun) -> None:
    name = run.topic("t")

    def only_own(response: MetadataResponse) -> None:
        response.topics = [topic for topic in response.topics if topic.name == name]

    record(run, "an empty list", metadata_request(version=run.version), change=only_own)
    if run.version >= 1:
        record(run, "null, which means all", MetadataRequest(topics=None), change=only_own)


@script(ApiKey.METADATA)
def topics_created_automatically(run: ScriptRun) -> None:
    for short in ("fresh", "fresher"):
        name = run.name(short)
        request = metadata_request(name, auto_create=True, version=run.version)
        record(run, f"{short}, for the first time", request)
        run.wait_for_leaders(name, 2)
        record(run, f"{short}, after that", metadata_request(name, auto_create=True, version=run.version))
    for illegal in ("", "../x", "a b", "x" * 250):
        record(run, f"the name {illegal[:20]!r}", metadata_request(illegal, auto_create=True, version=run.version))
    first, second = run.name("a.b"), run.name("a_b")
    run.call(metadata_request(first, auto_create=True, version=13))
    run.wait_for_leaders(first, 2)
    colliding = second.replace(".", "_")
    run.names.strings[colliding] = "a_b"
    request = metadata_request(colliding, auto_create=True, version=run.version)
    record(run, "a name that collides with another", request)


@script(ApiKey.METADATA)
def topics_by_id(run: ScriptRun) -> None:
    if run.version < 10:
        return
    name = run.topic("t")
    topic_id = run.topic_id(name)

    def by_id(topic_id: Uuid, name: str | None = None) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=name)])

    record(run, "an id", by_id(topic_id))
    record(run, "an id and a name", by_id(topic_id, name))
    record(run, "an id and an empty name", by_id(topic_id, ""))
    record(run, "an unknown id", by_id(UNKNOWN_TOPIC_ID))
    record(run, "an unknown id and a name", by_id(UNKNOWN_TOPIC_ID, name))
    record(run, "neither id nor name", by_id(ZERO_UUID), differs=SPECIFIC_ERROR)
    mixed = by_id(topic_id)
    mixed.topics += [MetadataRequestTopic(name=name)]  # type: ignore[operator]
    record(run, "the same topic by id and by name", mixed)


@script(ApiKey.METADATA)
def authorized_operations(run: ScriptRun) -> None:
    if run.version < 8:
        return
    name = run.topic("t")
    request = metadata_request(name, run.name("nowhere"), version=run.version)
    request.include_topic_authorized_operations = True
    if run.version <= 10:
        request.include_cluster_authorized_operations = True
    record(run, "requested", request, unordered={"topics"})


@script(ApiKey.METADATA)
def deleted_topic(run: ScriptRun) -> None:
    from strandline.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

    name = run.topic("t")
    topic_id = run.topic_id(name)
    run.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000))
    run.wait_until(lambda: bool(run.metadata(name).topics[0].error_code), f"{name} is still there")
    if run.version >= 4:
        record(run, "by name", metadata_request(name, version=run.version))
    if run.version >= 12:
        record(run, "by id", MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]))
