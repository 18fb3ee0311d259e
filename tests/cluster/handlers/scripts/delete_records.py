from __future__ import annotations

import time

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


def before(name: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    one = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[one])], timeout_ms=10_000)


@script(ApiKey.DELETE_RECORDS)
def records_deleted(talk: Talk) -> None:
    name = talk.topic("t", 2)
    talk.append(name, batch(3), batch(3))
    for offset in (0, 2, 1, 2, 7, -2, -(2**63), 2**62, 5, -1):
        talk.ask(f"before offset {offset}", before(name, offset))
        time.sleep(0.01)
    talk.ask("everything of an empty log", before(name, -1, partition=1))
    talk.ask("the same partition in the same place", before(name, -1))


@script(ApiKey.DELETE_RECORDS)
def deletions_refused(talk: Talk) -> None:
    name = talk.topic("t")
    compacted = talk.topic("compacted", cleanup_policy="compact")
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.ask("nothing", DeleteRecordsRequest(timeout_ms=1000))
    talk.ask("a topic without partitions", DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name)]))
    talk.ask("a topic that is not there", before(talk.name("nowhere"), 0))
    talk.ask("a topic with an illegal name", before("../x", 0))
    talk.ask("a partition that is not there", before(name, 0, partition=5))
    talk.ask("a compacted topic", before(compacted, 0))
    talk.ask("a topic that is compacted and deleted", before(both, 0))
    two = before(name, 0)
    two.topics += before(talk.name("nowhere"), 0).topics
    talk.ask("one that is there and one that is not", two, unordered={"topics"})
    twice = before(name, 0)
    twice.topics[0].partitions *= 2
    talk.ask("the same partition twice", twice)
