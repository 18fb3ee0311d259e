"""CreatePartitions, and DescribeTopicPartitions page by page."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

NAMED = "an error that has a name is told by it"


@script(ApiKey.CREATE_PARTITIONS, Asked.BOTH)
def partitions_added(talk: Talk) -> None:
    name = talk.topic("t")

    def topic(topic_name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
        each = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        return CreatePartitionsTopic(name=topic_name, count=count, assignments=each or None)

    def ask(label: str, *topics: CreatePartitionsTopic, validate: bool = False) -> None:
        request = CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate)
        talk.ask(label, request, unordered={"results"})

    ask("nothing")
    ask("validated only", topic(name, 2), validate=True)
    ask("to two", topic(name, 2))
    ask("to two again", topic(name, 2))
    ask("fewer", topic(name, 1))
    ask("none", topic(name, 0))
    ask("below zero", topic(name, -1))
    ask("a topic that is not there", topic(talk.name("nowhere"), 2))
    ask("an illegal name", topic("../x", 2))
    ask("the same topic twice", topic(name, 3), topic(name, 4))
    ask("assigned", topic(name, 3, [1]))
    ask("assigned to one that is not there", topic(name, 4, [9]))
    ask("assigned to nobody", topic(name, 4, []))
    ask("assigned too few", topic(name, 6, [1]))
    ask("assigned too many", topic(name, 4, [1], [1]))
    ask("assigned twice to the same", topic(name, 4, [1, 1]))
    empty = topic(name, 4)
    empty.assignments = []
    ask("an empty list of assignments", empty, validate=True)
    ask("one good, one bad", topic(name, 5), topic(talk.name("nowhere"), 2))


@script(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def partitions_described(talk: Talk) -> None:
    """The node's own limit is five partitions."""
    a, b, c = talk.topic("a", 2), talk.topic("b", 3), talk.topic("c", 7)

    def ask(label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
        )
        if cursor is not None:
            request.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
        talk.ask(label, request)

    ask("one topic", a)
    ask("two topics, in no order", b, a)
    ask("three topics, which are too many partitions", c, b, a)
    ask("the same topic twice", a, a)
    ask("from a cursor", a, b, c, cursor=(b, 1))
    ask("from a cursor at the end of a topic", a, b, c, cursor=(a, 2))
    ask("from a cursor far behind the end of a topic", a, b, c, cursor=(a, 9))
    ask("from a cursor at a topic that is not there", a, b, c, cursor=(talk.name("aa"), 1))
    ask("from a cursor at a topic that was not asked for", a, c, cursor=(b, 1))
    ask("from a cursor behind all topics", a, b, cursor=(c, 0))
    ask("from a cursor below zero", a, b, cursor=(a, -1))
    ask("one partition at a time", a, b, limit=1)
    ask("exactly one topic", a, b, limit=2)
    ask("everything there is", a, b, limit=5)
    ask("no partitions", a, limit=0)
    ask("partitions below zero", a, limit=-1)
    ask("a topic that is not there", talk.name("nowhere"))
    ask("one that is there and one that is not", a, talk.name("nowhere"))
    ask("one that is not there, behind the limit", a, b, talk.name("nowhere"))
    ask("an illegal name", "../x")
    talk.ask("an empty name", DescribeTopicPartitionsRequest(topics=[TopicRequest()]), differs=NAMED)
