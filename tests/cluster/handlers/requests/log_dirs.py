"""DescribeLogDirs."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@script(ApiKey.DESCRIBE_LOG_DIRS)
def log_directories(run: ScriptRun) -> None:
    name = run.topic("t", 2)
    run.append(name, batch(3))

    def only_own(response: DescribeLogDirsResponse) -> None:
        for result in response.results:
            result.topics = [topic for topic in result.topics if topic.name == name]

    def record(label: str, *topics: DescribableLogDirTopic) -> None:
        run.record(label, DescribeLogDirsRequest(topics=list(topics)), unordered={"partitions", "topics"})

    run.record("everything", DescribeLogDirsRequest(topics=None), change=only_own, unordered={"partitions"})
    record("one partition", DescribableLogDirTopic(topic=name, partitions=[0]))
    record("both partitions", DescribableLogDirTopic(topic=name, partitions=[0, 1]))
    record("an unknown partition", DescribableLogDirTopic(topic=name, partitions=[9]))
    record("an unknown topic", DescribableLogDirTopic(topic=run.name("nowhere"), partitions=[0]))
    record("a topic without partitions", DescribableLogDirTopic(topic=name))
    record("no topics")
