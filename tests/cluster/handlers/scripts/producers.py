"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)

NO_TRANSACTIONS = "transactions are not served yet"


@script(ApiKey.INIT_PRODUCER_ID)
def producer_ids(talk: Talk) -> None:
    def request(transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1) -> InitProducerIdRequest:
        made = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        if talk.version >= 3:
            made.producer_id, made.producer_epoch = producer_id, epoch
        return made

    # Kafka has none before it was asked for one.
    talk.until(lambda: not talk.quietly(InitProducerIdRequest(transactional_id=None)).error_code, "there are no ids")
    talk.ask("one", request())
    talk.ask("another", request())
    talk.ask("an empty transactional id", request(""))
    no_timeout = request()
    no_timeout.transaction_timeout_ms = -1
    talk.ask("a timeout below zero", no_timeout)
    if talk.version >= 3:
        talk.ask("an id without an epoch", request(producer_id=5))
        talk.ask("an epoch without an id", request(epoch=5))
        talk.ask("an id and an epoch", request(producer_id=5, epoch=5))
        talk.ask("an id below -1", request(producer_id=-5, epoch=-5))
    talk.ask("a transactional id", request(f"tx-{talk.version}"), differs=NO_TRANSACTIONS, mask={"error_code"})


@script(ApiKey.DESCRIBE_PRODUCERS)
def active_producers(talk: Talk) -> None:
    name = talk.topic("t", 2)

    def of(topic: str, *partitions: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])

    talk.ask("nobody", of(name, 0))
    talk.append(name, batch(3, producer_id=1_000_050, producer_epoch=2, base_sequence=0))
    talk.append(name, batch(3, producer_id=1_000_050, producer_epoch=2, base_sequence=3))
    talk.append(name, batch(1))
    talk.ask("one", of(name, 0))
    talk.append(name, batch(1, producer_id=1_000_049, producer_epoch=0, base_sequence=0))
    talk.ask("two", of(name, 0), unordered={"active_producers"})
    talk.ask("two partitions", of(name, 0, 1), unordered={"active_producers", "partitions"})
    talk.ask("a topic that is not there", of(talk.name("nowhere"), 0))
    talk.ask("a topic with an illegal name", of("../x", 0))
    talk.ask("a partition that is not there", of(name, 7))
    talk.ask("no partitions", of(name))
    talk.ask("nothing", DescribeProducersRequest())
