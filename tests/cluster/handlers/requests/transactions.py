"""The transaction coordinator's APIs, and records of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import batch, produce
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.messages.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TopicRequest,
)
from strandline.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MASK = {"producer_id"}
DESCRIBED = {"producer_id", "transaction_start_time_ms"}


class TransactionalProducer:
    """A transactional id and what the coordinator has given it. Its own requests are not recorded."""

    def __init__(self, run: ScriptRun, short: str = "tx", timeout_ms: int = 60_000) -> None:
        self.run = run
        self.transactional_id = run.name(short)
        self.timeout_ms = timeout_ms
        for kind, key in ((0, "g"), (1, self.transactional_id)):
            run.wait_until(
                lambda kind=kind, key=key: (
                    not run.call(  # type: ignore[misc]
                        FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                    )
                    .coordinators[0]
                    .error_code
                ),
                "there is no coordinator",
            )
        self.sequence = 0
        self.init()

    def init(self) -> None:
        response = self.retried(self.init_request)
        assert isinstance(response, InitProducerIdResponse) and not response.error_code, response
        self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0

    def init_request(self) -> Any:
        return self.run.call(InitProducerIdRequest(self.transactional_id, self.timeout_ms))

    def retried(self, call: Callable[[], Any]) -> Any:
        """The first response other than CONCURRENT_TRANSACTIONS and those of a coordinator that is loading."""
        response = None
        retriable = {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }

        def is_final() -> bool:
            nonlocal response
            response = call()
            return getattr(response, "error_code", 0) not in retriable

        self.run.wait_until(is_final, "the last transaction does not end")
        return response

    def add(self, topic: str, *partitions: int, epoch: int | None = None) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(partitions))],
        )

    def batched(self, topic: str, *partitions: int, verify_only: bool = False) -> AddPartitionsToTxnRequest:
        transaction = AddPartitionsToTxnTransaction(
            self.transactional_id,
            self.producer_id,
            self.epoch,
            verify_only,
            [AddPartitionsToTxnTopic(topic, list(partitions))],
        )
        return AddPartitionsToTxnRequest([transaction])

    def begin(self, topic: str, *partitions: int) -> None:
        def is_added() -> bool:
            response = self.run.call(self.add(topic, *partitions), 3)
            results = response.results_by_topic_v3_and_below[0].results_by_partition
            assert all(each.partition_error_code in (0, 51) for each in results), response
            return not any(each.partition_error_code for each in results)

        self.run.wait_until(is_added, "the last transaction does not end")

    def end(self, *, commit: bool, epoch: int | None = None, producer_id: int | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            self.transactional_id,
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            commit,
        )

    def finish(self, *, commit: bool, version: int = 4) -> None:
        """Ends the transaction and waits until it is completed."""
        response = self.run.call(self.end(commit=commit), version)
        assert isinstance(response, EndTxnResponse) and not response.error_code, response
        if version >= 5:
            self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0
        self.wait_until_completed()

    def wait_until_completed(self) -> None:
        self.run.wait_until(
            lambda: self.described().transaction_state.startswith("Complete"), "the transaction is not completed"
        )

    def described(self) -> Any:
        return self.run.call(DescribeTransactionsRequest([self.transactional_id])).transaction_states[0]

    def produce(self, topic: str, count: int = 1, *, epoch: int | None = None, topic_id: Any = None) -> ProduceRequest:
        records = batch(
            count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += count
        request = produce(topic, records, topic_id=topic_id)
        request.transactional_id = self.transactional_id
        return request

    def offsets(self, topic: str, offset: int, group: str, *, epoch: int | None = None) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.epoch if epoch is None else epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic, [TxnOffsetCommitRequestPartition(0, offset, -1, "m"), TxnOffsetCommitRequestPartition(7, 1)]
                )
            ],
        )


@script(ApiKey.INIT_PRODUCER_ID)
def transactional_producer_ids(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t")

    def request(producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> InitProducerIdRequest:
        made = InitProducerIdRequest(producer.transactional_id, timeout_ms)
        if run.version >= 3:
            made.producer_id, made.producer_epoch = producer_id, epoch
        return made

    run.record("the next epoch", request(), mask=MASK)
    run.record("a timeout of 0", request(timeout_ms=0))
    run.record("a timeout that is too long", request(timeout_ms=900_001))
    producer.init()
    if run.version >= 3:
        run.record("a producer that continues", request(producer.producer_id, producer.epoch), mask=MASK)
        run.record("a retry", request(producer.producer_id, producer.epoch), mask=MASK)
        run.record("an older epoch", request(producer.producer_id, 0), mask=MASK)
        run.record("another producer id", request(producer.producer_id + 1, 0), mask=MASK)
        producer.init()
    producer.begin(topic, 0)
    run.record("while a transaction is open", request(), mask=MASK)
    producer.wait_until_completed()
    run.record("after it was aborted", request(), mask=MASK)
    run.record("the zombie ends its transaction", producer.end(commit=True), version=4)
    run.record("the zombie adds a partition", producer.add(topic, 0), version=3)


@script(ApiKey.ADD_PARTITIONS_TO_TXN)
def partitions_of_a_transaction(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t", 3)
    if run.version < 4:
        run.record("a partition", producer.add(topic, 0))
        run.record("it again, and another", producer.add(topic, 0, 1), unordered={"results_by_partition"})
        run.record("unknown partitions", producer.add(topic, 2, 7), unordered={"results_by_partition"})
        run.record("an older epoch", producer.add(topic, 2, epoch=producer.epoch - 1))
        producer.producer_id += 1
        run.record("another producer id", producer.add(topic, 2))
        producer.producer_id -= 1
        producer.transactional_id, known = run.name("other"), producer.transactional_id
        run.record("an unknown transactional id", producer.add(topic, 2))
        producer.transactional_id = known
        run.record("no partitions", producer.add(topic))
        run.call(producer.end(commit=True), 4)
        producer.wait_until_completed()
        run.record("of the next transaction", producer.add(topic, 2))
    else:
        run.record("verify before it is added", producer.batched(topic, 0, verify_only=True))
        run.record("a partition", producer.batched(topic, 0))
        run.record("it again, and another", producer.batched(topic, 0, 1), unordered={"results_by_partition"})
        run.record("verify", producer.batched(topic, 1, 2, verify_only=True), unordered={"results_by_partition"})
        run.record("unknown partitions", producer.batched(topic, 2, 7), unordered={"results_by_partition"})
        producer.epoch -= 1
        run.record("an older epoch", producer.batched(topic, 2))
        run.record("verify an older epoch", producer.batched(topic, 0, verify_only=True))
        producer.epoch += 1
    run.record(
        "described",
        DescribeTransactionsRequest([producer.transactional_id]),
        version=0,
        mask=DESCRIBED,
        unordered={"partitions"},
    )


@script(ApiKey.ADD_OFFSETS_TO_TXN)
def groups_of_a_transaction(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    group = run.name("g")

    def request(epoch: int = 0, producer_id: int = 0, transactional_id: str | None = None) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            producer.transactional_id if transactional_id is None else transactional_id,
            producer.producer_id + producer_id,
            producer.epoch + epoch,
            group,
        )

    run.record("a group", request())
    run.record("it again", request())
    run.record("an older epoch", request(epoch=-1))
    run.record("another producer id", request(producer_id=1))
    run.record("an unknown transactional id", request(transactional_id=run.name("other")))
    run.record("an empty transactional id", request(transactional_id=""))
    run.record("described", DescribeTransactionsRequest([producer.transactional_id]), version=0, mask=DESCRIBED)


@script(ApiKey.END_TXN)
def ends_of_a_transaction(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t")
    mask = MASK if run.version >= 5 else ()
    run.record("a commit without a transaction", producer.end(commit=True), mask=mask)
    run.record("an unknown transactional id", EndTxnRequest(run.name("other"), 1, 1, True), mask=mask)
    run.record("an empty transactional id", EndTxnRequest("", 1, 1, True), mask=mask)
    producer.begin(topic, 0)
    run.record("an older epoch", producer.end(commit=True, epoch=producer.epoch - 1), mask=mask)
    run.record("a newer epoch", producer.end(commit=True, epoch=producer.epoch + 1), mask=mask)
    run.record("another producer id", producer.end(commit=True, producer_id=producer.producer_id + 1), mask=mask)
    run.record("a commit", producer.end(commit=True), mask=mask)
    producer.wait_until_completed()
    run.record("a retry", producer.end(commit=True), mask=mask)
    run.record("an abort after the commit", producer.end(commit=False), mask=mask)
    producer.init()
    producer.begin(topic, 0)
    run.record("an abort", producer.end(commit=False), mask=mask)
    producer.wait_until_completed()
    run.record("a retry of the abort", producer.end(commit=False), mask=mask)
    run.record("a commit after the abort", producer.end(commit=True), mask=mask)
    producer.init()
    run.record("an abort without a transaction", producer.end(commit=False), mask=mask)


@script(ApiKey.WRITE_TXN_MARKERS)
def transaction_markers(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t", 2)

    def of(index: int, *, epoch: int = 0, coordinator_epoch: int = 5, commit: bool = True) -> WriteTxnMarkersRequest:
        marker = WritableTxnMarker(
            producer.producer_id,
            producer.epoch + epoch,
            commit,
            [WritableTxnMarkerTopic(topic, [index])],
            coordinator_epoch,
        )
        if run.version >= 2:
            marker.transaction_version = 2
        return WriteTxnMarkersRequest([marker])

    producer.init()
    producer.begin(topic, 0)
    assert not run.call(producer.produce(topic, 2), 11).responses[0].partition_responses[0].error_code
    run.record("an older epoch", of(0, epoch=-1), mask=MASK)
    run.record("of an open transaction", of(0, epoch=1), mask=MASK)
    run.record("once more", of(0, epoch=1), mask=MASK)
    run.record("an older coordinator", of(0, epoch=1, coordinator_epoch=4), mask=MASK)
    run.record("without a transaction", of(1, commit=False), mask=MASK)
    run.record("an unknown partition", of(7), mask=MASK)
    run.record("no markers", WriteTxnMarkersRequest())
    run.record(
        "described",
        DescribeProducersRequest([TopicRequest(topic, [0])]),
        version=0,
        mask={"producer_id", "last_timestamp"},
    )


def committed_offset_of(run: ScriptRun, group: str, topic: str) -> int:
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    response = run.call(OffsetFetchRequest(groups=[wanted]), 9)
    offset: int = response.groups[0].topics[0].partitions[0].committed_offset
    return offset


@script(ApiKey.TXN_OFFSET_COMMIT)
def offsets_of_a_transaction(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic, group = run.topic("t"), run.name("g")
    if run.version < 5:
        run.record("before the group is added", producer.offsets(topic, 3, group))
        run.call(AddOffsetsToTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, group), 3)
    run.record("offsets", producer.offsets(topic, 3, group))
    run.record("an older epoch", producer.offsets(topic, 4, group, epoch=producer.epoch - 1))
    run.record("no group", producer.offsets(topic, 3, ""))
    if run.version >= 3:
        request = producer.offsets(topic, 3, group)
        request.generation_id, request.member_id = 1, "m"
        run.record("an unknown member", request)
    run.add("committed before the end", str(committed_offset_of(run, group, topic)))
    producer.finish(commit=True, version=5 if run.version >= 5 else 4)
    run.wait_until(lambda: committed_offset_of(run, group, topic) == 3, "the offset is not committed")


@script(ApiKey.DESCRIBE_TRANSACTIONS)
def described_transactions(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t", 2)
    request = DescribeTransactionsRequest([producer.transactional_id])
    run.record("without a transaction", request, mask=DESCRIBED)
    producer.begin(topic, 0, 1)
    run.record("open", request, mask=DESCRIBED, unordered={"partitions"})
    producer.finish(commit=True)
    run.record("committed", request, mask=DESCRIBED)
    run.record("unknown", DescribeTransactionsRequest([run.name("other"), ""]))
    run.record("none", DescribeTransactionsRequest())


@script(ApiKey.LIST_TRANSACTIONS)
def listed_transactions(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t")
    producer.begin(topic, 0)
    ids = [producer.producer_id]
    run.record("by producer id", ListTransactionsRequest(producer_id_filters=ids), mask=MASK)
    run.record("by state", ListTransactionsRequest(["Ongoing", "Nonsense"], ids), mask=MASK)
    run.record("by another state", ListTransactionsRequest(["Empty"], ids))
    run.record("by an unknown state", ListTransactionsRequest(["ongoing"], ids))
    if run.version >= 1:
        run.record("by duration", ListTransactionsRequest(producer_id_filters=ids, duration_filter=0), mask=MASK)
        run.record("by a long duration", ListTransactionsRequest(producer_id_filters=ids, duration_filter=3_600_000))
    producer.finish(commit=False)


@script(ApiKey.PRODUCE)
def transactional_records(run: ScriptRun) -> None:
    producer = TransactionalProducer(run)
    topic = run.topic("t")
    topic_id = run.topic_id(topic) if run.version >= 13 else None

    def request(epoch: int | None = None) -> ProduceRequest:
        made = producer.produce("" if topic_id is not None else topic, epoch=epoch, topic_id=topic_id)
        return made

    if run.version < 12:
        run.record("before the partition is added", request())
        producer.sequence = 0
        producer.begin(topic, 0)
    run.record("of a transaction", request())
    run.record("the next batch", request())
    run.record("an older epoch", request(epoch=producer.epoch - 1))
    producer.sequence -= 1
    producer.finish(commit=True, version=5 if run.version >= 12 else 4)
    if run.version < 12:
        run.record("after the end", request())
        producer.sequence -= 1
        producer.begin(topic, 0)
    run.record("of the next transaction", request())
    producer.finish(commit=False, version=5 if run.version >= 12 else 4)
    fetched = run.call(
        FetchRequest(
            max_wait_ms=0,
            isolation_level=1,
            topics=[
                FetchTopic(topic=topic, partitions=[FetchPartition(0, fetch_offset=3, partition_max_bytes=1 << 20)])
            ],
        ),
        12,
    )
    partition = fetched.responses[0].partitions[0]
    aborted = [each.first_offset for each in partition.aborted_transactions or ()]
    run.add(
        "read committed",
        f"last stable offset {partition.last_stable_offset}, high watermark {partition.high_watermark}, "
        f"aborted from {aborted}",
    )
