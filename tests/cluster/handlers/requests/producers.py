"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)


@script(ApiKey.INIT_PRODUCER_ID)
def producer_ids(run: ScriptRun) -> None:
    def request(transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1) -> InitProducerIdRequest:
        made = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        if run.version >= 3:
            made.producer_id, made.producer_epoch = producer_id, epoch
        return made

    # Kafka allocates the first block of ids on the first request.
    run.wait_until(
        lambda: not run.call(InitProducerIdRequest(transactional_id=None)).error_code, "no producer ids were allocated"
    )
    run.record("one", request())
    run.record("another", request())
    run.record("an empty transactional id", request(""))
    no_timeout = request()
    no_timeout.transaction_timeout_ms = -1
    run.record("a negative timeout", no_timeout)
    if run.version >= 3:
        run.record("an id without an epoch", request(producer_id=5))
        run.record("an epoch without an id", request(epoch=5))
        run.record("an id and an epoch", request(producer_id=5, epoch=5))
        run.record("an id below -1", request(producer_id=-5, epoch=-5))
    run.record("a transactional id", request(f"tx-{run.version}"), mask={"error_code"})


@script(ApiKey.DESCRIBE_PRODUCERS)
def active_producers(run: ScriptRun) -> None:
    name = run.topic("t", 2)

    def of(topic: str, *partitions: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])

    run.record("no producers", of(name, 0))
    run.append(name, batch(3, producer_id=1_000_050, producer_epoch=2, base_sequence=0))
    run.append(name, batch(3, producer_id=1_000_050, producer_epoch=2, base_sequence=3))
    run.append(name, batch(1))
    run.record("one", of(name, 0))
    run.append(name, batch(1, producer_id=1_000_049, producer_epoch=0, base_sequence=0))
    run.record("two", of(name, 0), unordered={"active_producers"})
    run.record("two partitions", of(name, 0, 1), unordered={"active_producers", "partitions"})
    run.record("an unknown topic", of(run.name("nowhere"), 0))
    run.record("a topic with an invalid name", of("../x", 0))
    run.record("an unknown partition", of(name, 7))
    run.record("no partitions", of(name))
    run.record("an empty request", DescribeProducersRequest())
