from __future__ import annotations

import pytest

from strandline.client.core.fetched_records import FetchedPartition, read_fetched_records
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.fetch import AbortedTransaction, PartitionData
from strandline.records.batch import Record, encode_batch, end_transaction_marker

PARTITION = TopicPartition("t", 0)


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    records = [Record(base_offset + index, 0, None, value) for index, value in enumerate(values)]
    return bytes(
        encode_batch(records, base_offset=base_offset, producer_id=producer_id, transactional=producer_id >= 0)
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        end_transaction_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=offset,
        )
    )


def read(
    data: bytes, offset: int = 0, aborted: list[tuple[int, int]] | None = None, **options: bool
) -> FetchedPartition:
    transactions = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted or []]
    partition = PartitionData(records=data, aborted_transactions=transactions)
    settings = {"read_committed": False, "check_crcs": True, "keep_control": False, **options}
    return read_fetched_records(PARTITION, partition, offset, **settings)


def shown(fetched: FetchedPartition) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in fetched.records()]


def test_records_before_the_fetch_offset_are_left_out() -> None:
    fetched = read(batch(0, b"a", b"b") + batch(2, b"c", b"d") + batch(4, b"e"), offset=3)
    assert shown(fetched) == [(3, b"d"), (4, b"e")]
    assert fetched.next_offset == 5


def test_an_incomplete_batch_at_the_end_is_fetched_again() -> None:
    fetched = read(batch(0, b"a") + batch(1, b"b")[:-1])
    assert shown(fetched) == [(0, b"a")]
    assert fetched.next_offset == 1


def test_the_position_advances_past_batches_without_visible_records() -> None:
    fetched = read(marker(0, 9, commit=True) + bytes(encode_batch([], base_offset=1)))
    assert (shown(fetched), fetched.next_offset) == ([], 2)
    assert len(read(marker(0, 9, commit=True), keep_control=True).batches) == 1


def test_the_position_stays_without_data() -> None:
    assert read(b"", offset=12).next_offset == 12


def test_aborted_transactions_are_hidden_with_read_committed() -> None:
    data = (
        batch(0, b"aborted", producer_id=1)
        + batch(1, b"committed", producer_id=2)
        + marker(2, 1, commit=False)
        + batch(3, b"later, by the same producer", producer_id=1)
        + batch(4, b"plain")
        + marker(5, 1, commit=True)
    )
    committed = read(data, aborted=[(1, 0)], read_committed=True)
    assert shown(committed) == [(1, b"committed"), (3, b"later, by the same producer"), (4, b"plain")]
    assert committed.next_offset == 6
    assert len(shown(read(data))) == 4


def test_damage_is_an_error_with_its_offset_after_the_batches_before_it_were_returned() -> None:
    damaged = bytearray(batch(0, b"a") + batch(1, b"bbbb"))
    damaged[-2] ^= 1
    before = read(bytes(damaged))
    assert (shown(before), before.next_offset) == ([(0, b"a")], 1)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: t-0 from offset 1"):
        read(bytes(damaged), offset=1)
    assert len(shown(read(bytes(damaged), check_crcs=False))) == 2
