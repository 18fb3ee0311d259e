"""CreatePartitions, and DescribeTopicPartitions page by page."""

from __future__ import annotations

from cluster.handlers.script_run import SPECIFIC_ERROR, ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


@script(ApiKey.CREATE_PARTITIONS, Listeners.BOTH)
def partitions_added(run: ScriptRun) -> None:
    name = run.topic("t")

    def topic(topic_name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
        each = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        return CreatePartitionsTopic(name=topic_name, count=count, assignments=each or None)

    def record(label: str, *topics: CreatePartitionsTopic, validate: bool = False) -> None:
        request = CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate)
        run.record(label, request, unordered={"results"})

    record("an empty request")
    record("validated only", topic(name, 2), validate=True)
    record("to two", topic(name, 2))
    record("to two again", topic(name, 2))
    record("fewer", topic(name, 1))
    record("zero", topic(name, 0))
    record("negative", topic(name, -1))
    record("an unknown topic", topic(run.name("nowhere"), 2))
    record("an invalid name", topic("../x", 2))
    record("the same topic twice", topic(name, 3), topic(name, 4))
    record("assigned", topic(name, 3, [1]))
    record("assigned to an unknown broker", topic(name, 4, [9]))
    record("assigned to no broker", topic(name, 4, []))
    record("assigned too few", topic(name, 6, [1]))
    record("assigned too many", topic(name, 4, [1], [1]))
    record("assigned twice to the same broker", topic(name, 4, [1, 1]))
    empty = topic(name, 4)
    empty.assignments = []
    record("an empty list of assignments", empty, validate=True)
    record("one good, one bad", topic(name, 5), topic(run.name("nowhere"), 2))


@script(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def partitions_described(run: ScriptRun) -> None:
    """The node's limit (max.request.partition.size.limit) is five partitions."""
    a, b, c = run.topic("a", 2), run.topic("b", 3), run.topic("c", 7)

    def record(label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
        )
        if cursor is not None:
            request.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
        run.record(label, request)

    record("one topic", a)
    record("two topics, unordered", b, a)
    record("three topics with more partitions than the limit", c, b, a)
    record("the same topic twice", a, a)
    record("from a cursor", a, b, c, cursor=(b, 1))
    record("from a cursor at the end of a topic", a, b, c, cursor=(a, 2))
    record("from a cursor far beyond the end of a topic", a, b, c, cursor=(a, 9))
    record("from a cursor at an unknown topic", a, b, c, cursor=(run.name("aa"), 1))
    record("from a cursor at a topic that was not requested", a, c, cursor=(b, 1))
    record("from a cursor after all topics", a, b, cursor=(c, 0))
    record("from a cursor at a negative partition", a, b, cursor=(a, -1))
    record("one partition at a time", a, b, limit=1)
    record("exactly one topic", a, b, limit=2)
    record("everything there is", a, b, limit=5)
    record("no partitions", a, limit=0)
    record("a negative number of partitions", a, limit=-1)
    record("an unknown topic", run.name("nowhere"))
    record("one known, one unknown", a, run.name("nowhere"))
    record("an unknown topic beyond the limit", a, b, run.name("nowhere"))
    record("an invalid name", "../x")
    run.record("an empty name", DescribeTopicPartitionsRequest(topics=[TopicRequest()]), differs=SPECIFIC_ERROR)
