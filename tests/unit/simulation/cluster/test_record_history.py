"""Records that were sent, acknowledged and read, compared with each other."""

from __future__ import annotations

import pytest

from strandline.model.ids import TopicPartition
from strandline.simulation.cluster.record_history import RecordHistory
from strandline.simulation.cluster.violation import Violation

PARTITION = TopicPartition("records", 0)


def sent(*values: bytes) -> RecordHistory:
    records = RecordHistory()
    for value in values:
        records.sent(PARTITION, value)
    return records


def test_acknowledged_records_found_in_order_are_accepted() -> None:
    records = sent(b"a", b"b", b"c")
    records.acked(PARTITION, 0, b"a")
    records.read(PARTITION, 0, b"a")
    records.acked(PARTITION, -1, b"c")
    records.check(PARTITION, [(0, b"a"), (1, b"b"), (2, b"c")])
    assert records.acknowledged == 2


def test_unacknowledged_records_may_be_missing() -> None:
    records = sent(b"a", b"b")
    records.acked(PARTITION, 0, b"b")
    records.check(PARTITION, [(0, b"b")])


@pytest.mark.parametrize("offset", [0, -1])
def test_acknowledged_records_must_not_be_missing(offset: int) -> None:
    records = sent(b"a")
    records.acked(PARTITION, offset, b"a")
    with pytest.raises(Violation, match=r"lost-write: b'a' was acknowledged"):
        records.check(PARTITION, [])


def test_records_that_were_read_must_not_be_missing() -> None:
    records = sent(b"a")
    records.read(PARTITION, 0, b"a")
    with pytest.raises(Violation, match="I-11: b'a' was read"):
        records.check(PARTITION, [])


def test_an_offset_holds_one_value() -> None:
    records = sent(b"a", b"b")
    records.acked(PARTITION, 3, b"a")
    with pytest.raises(Violation, match=r"inconsistent-offsets: b'b' is read at .* which held b'a' before"):
        records.read(PARTITION, 3, b"b")


def test_a_value_is_at_one_offset_only() -> None:
    records = sent(b"a")
    records.read(PARTITION, 3, b"a")
    with pytest.raises(Violation, match=r"duplicate: b'a' is acknowledged at .* offset 4"):
        records.acked(PARTITION, 4, b"a")


@pytest.mark.parametrize("partition", [PARTITION, TopicPartition("records", 1)])
def test_only_records_that_were_sent_to_a_partition_are_read_from_it(partition: TopicPartition) -> None:
    records = sent(b"a")
    with pytest.raises(Violation, match="unsent"):
        records.read(partition, 0, b"b" if partition is PARTITION else b"a")


def test_the_log_end_shown_to_a_client_does_not_decrease() -> None:
    records = sent()
    records.end_seen("one", PARTITION, 5)
    records.end_seen("one", PARTITION, 5)
    records.end_seen("other", PARTITION, 4)
    with pytest.raises(Violation, match=r"I-11: one shows that .* ends at 4, and it ended at 5"):
        records.end_seen("one", PARTITION, 4)


def test_records_of_one_producer_are_in_order_unless_a_delivery_failed() -> None:
    records = sent(b"a", b"b")
    records.failed = 1
    records.check(PARTITION, [(0, b"b"), (1, b"a")])
    records.failed = 0
    with pytest.raises(Violation, match="reversed"):
        records.check(PARTITION, [(0, b"b"), (1, b"a")])


def test_no_order_is_expected_with_several_batches_in_flight() -> None:
    records = RecordHistory(one_at_a_time=False)
    for value in (b"a", b"b"):
        records.sent(PARTITION, value)
    records.check(PARTITION, [(0, b"b"), (1, b"a")])
