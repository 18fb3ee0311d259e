"""Topics, partitions and brokers as arguments: `orders`, `orders:0`, `orders:0,2`; checked with the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed, UsageError
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.descriptions import TopicDescription

PARTITIONS_METAVAR = "TOPIC[:P,…]"


def parse_partitions(words: list[str]) -> dict[str, list[int] | None]:
    """The partitions named for each topic; None for all of them."""
    found: dict[str, list[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        if not topic or (colon and not all(number.isdigit() for number in numbers.split(","))):
            raise UsageError(f"{word!r} is not TOPIC or TOPIC:PARTITION, for example orders, orders:0 or orders:0,2")
        if not colon:
            found[topic] = None
            continue
        named = found.setdefault(topic, [])
        if named is not None:
            named += [int(number) for number in numbers.split(",") if int(number) not in named]
    return found


async def named_topics(client: Client, words: list[str]) -> list[tuple[TopicDescription, list[TopicPartition]]]:
    """The topics that the arguments name (all topics without arguments), each with the named partitions."""
    named = parse_partitions(words)
    if not named:
        topics = await client.topics.list()
    else:
        topics = [await describe_topic(client, name) for name in named]
    found = []
    for topic in topics:
        existing = [each.index for each in topic.partitions]
        indexes = named.get(topic.name)
        missing = [index for index in indexes or () if index not in existing]
        if missing:
            raise CommandFailed(f"topic {topic.name!r} has {len(existing)} partitions, but no partition {missing[0]}")
        partitions = [TopicPartition(topic.name, index) for index in (existing if indexes is None else sorted(indexes))]
        found.append((topic, partitions))
    return found


async def describe_topic(client: Client, name: str) -> TopicDescription:
    try:
        return await client.topics.describe(name)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandFailed(f"there is no topic {name!r}: `strandline topic list` lists the topics") from error


def parse_brokers(text: str, option: str) -> list[int]:
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdigit() for number in numbers):
        raise UsageError(f"{option} {text!r}: write broker ids separated by commas, for example 1,2,3")
    brokers = [int(number) for number in numbers]
    if len(set(brokers)) < len(brokers):
        raise UsageError(f"{option} {text!r}: a broker holds at most one replica of a partition, so name each once")
    return brokers
