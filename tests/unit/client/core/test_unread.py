"""The oldest unread record after a committed offset: plain, transactional and compacted partitions."""

from __future__ import annotations

from strandline.client.core.unread import Lag, UnreadSearch
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.fetch import AbortedTransaction, PartitionData
from strandline.records.batch import Record, encode_batch, end_transaction_marker

PARTITION = TopicPartition("t", 0)


def batch(base_offset: int, *timestamps: int, producer_id: int = -1) -> bytes:
    records = [Record(base_offset + index, time, None, b"v") for index, time in enumerate(timestamps)]
    return bytes(
        encode_batch(records, base_offset=base_offset, producer_id=producer_id, transactional=producer_id >= 0)
    )


def marker(offset: int, producer_id: int) -> bytes:
    return bytes(
        end_transaction_marker(
            commit=False,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=offset,
        )
    )


def data(records: bytes, end: int, stable: int | None = None, aborted: tuple[int, int] | None = None) -> PartitionData:
    transactions = [] if aborted is None else [AbortedTransaction(producer_id=aborted[0], first_offset=aborted[1])]
    return PartitionData(
        records=records,
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        aborted_transactions=transactions,
    )


def test_a_committed_offset_inside_a_batch() -> None:
    search = UnreadSearch(PARTITION, 1, 3)
    assert search.on_data(data(batch(0, 10, 20, 30), 3))
    assert search.is_done and search.timestamp_ms == 20


def test_at_the_high_watermark_nothing_is_unread() -> None:
    search = UnreadSearch(PARTITION, 3, 3)
    assert search.is_done and search.timestamp_ms is None


def test_records_of_aborted_transactions_and_markers_are_read_by_no_consumer() -> None:
    search = UnreadSearch(PARTITION, 0, 4)
    log = batch(0, 10, 20, producer_id=7) + marker(2, 7) + batch(3, 99)
    assert search.on_data(data(log, 4, aborted=(7, 0)))
    assert search.timestamp_ms == 99


def test_after_a_response_without_visible_records_the_search_goes_on() -> None:
    search = UnreadSearch(PARTITION, 0, 4)
    assert search.on_data(data(batch(0, 10, 20, producer_id=7), 4, aborted=(7, 0)))
    assert not search.is_done and search.offset == 2
    assert search.on_data(data(marker(2, 7) + batch(3, 99), 4))
    assert search.timestamp_ms == 99


def test_only_aborted_records_and_markers_are_left() -> None:
    search = UnreadSearch(PARTITION, 0, 2)
    assert search.on_data(data(batch(0, 10, producer_id=7) + marker(1, 7), 2, aborted=(7, 0)))
    assert search.is_done and search.timestamp_ms is None


def test_a_record_of_an_open_transaction_is_unread() -> None:
    search = UnreadSearch(PARTITION, 2, 3)
    assert search.on_data(data(b"", 3, stable=2)), "with read_committed, the leader returns nothing"
    assert not search.read_committed
    assert search.on_data(data(batch(2, 55, producer_id=8), 3, stable=2))
    assert search.timestamp_ms == 55


def test_without_a_batch_the_search_reports_that_it_has_not_advanced() -> None:
    assert not UnreadSearch(PARTITION, 0, 3).on_data(data(b"", 3))


def test_lag_in_records_and_milliseconds() -> None:
    assert Lag(committed=3, log_end=10, oldest_ms=1_000).records == 7
    assert Lag(committed=12, log_end=10).records == 0
    assert Lag(3, 10, 1_000).age_ms(4_000) == 3_000
    assert Lag(3, 10, 5_000).age_ms(4_000) == 0, "a timestamp in the future"
    assert Lag(3, 10, None).age_ms(4_000) == 0
