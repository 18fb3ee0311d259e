"""DescribeLogDirs."""

from __future__ import annotations

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@script(ApiKey.DESCRIBE_LOG_DIRS)
def log_directories(talk: Talk) -> None:
    name = talk.topic("t", 2)
    talk.append(name, batch(3))

    def only_own(answer: DescribeLogDirsResponse) -> None:
        for result in answer.results:
            result.topics = [topic for topic in result.topics if topic.name == name]

    def ask(label: str, *topics: DescribableLogDirTopic) -> None:
        talk.ask(label, DescribeLogDirsRequest(topics=list(topics)), unordered={"partitions", "topics"})

    talk.ask("everything", DescribeLogDirsRequest(topics=None), change=only_own, unordered={"partitions"})
    ask("one partition", DescribableLogDirTopic(topic=name, partitions=[0]))
    ask("both partitions", DescribableLogDirTopic(topic=name, partitions=[0, 1]))
    ask("a partition that is not there", DescribableLogDirTopic(topic=name, partitions=[9]))
    ask("a topic that is not there", DescribableLogDirTopic(topic=talk.name("nowhere"), partitions=[0]))
    ask("a topic without partitions", DescribableLogDirTopic(topic=name))
    ask("no topics")
