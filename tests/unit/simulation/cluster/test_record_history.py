"""What was written, acknowledged and read, held against each other."""

from __future__ import annotations

import pytest

from strandline.model.ids import TopicPartition
from strandline.simulation.cluster.record_history import Records
from strandline.simulation.cluster.violation import Violation

PARTITION = TopicPartition("records", 0)


def sent(*values: bytes) -> Records:
    records = Records()
    for value in values:
        records.sent(PARTITION, value)
    return records


def test_what_was_acknowledged_and_is_there_in_order_is_as_it_should_be() -> None:
    records = sent(b"a", b"b", b"c")
    records.acked(PARTITION, 0, b"a")
    records.read(PARTITION, 0, b"a")
    records.acked(PARTITION, -1, b"c")
    records.check(PARTITION, [(0, b"a"), (1, b"b"), (2, b"c")])
    assert records.acknowledged == 2


def test_what_was_not_acknowledged_may_be_missing() -> None:
    records = sent(b"a", b"b")
    records.acked(PARTITION, 0, b"b")
    records.check(PARTITION, [(0, b"b")])


@pytest.mark.parametrize("offset", [0, -1])
def test_what_was_acknowledged_may_not_be_missing(offset: int) -> None:
    records = sent(b"a")
    records.acked(PARTITION, offset, b"a")
    with pytest.raises(Violation, match=r"lost-write: b'a' was acknowledged"):
        records.check(PARTITION, [])


def test_what_was_read_may_not_be_missing() -> None:
    records = sent(b"a")
    records.read(PARTITION, 0, b"a")
    with pytest.raises(Violation, match="I-11: b'a' was read"):
        records.check(PARTITION, [])


def test_an_offset_holds_one_value() -> None:
    records = sent(b"a", b"b")
    records.acked(PARTITION, 3, b"a")
    with pytest.raises(Violation, match=r"inconsistent-offsets: b'b' is read at .* which was that of b'a'"):
        records.read(PARTITION, 3, b"b")


def test_a_value_is_there_once() -> None:
    records = sent(b"a")
    records.read(PARTITION, 3, b"a")
    with pytest.raises(Violation, match=r"duplicate: b'a' is acknowledged at .* offset 4"):
        records.acked(PARTITION, 4, b"a")


@pytest.mark.parametrize("partition", [PARTITION, TopicPartition("records", 1)])
def test_nothing_is_read_that_was_not_sent_there(partition: TopicPartition) -> None:
    records = sent(b"a")
    with pytest.raises(Violation, match="unsent"):
        records.read(partition, 0, b"b" if partition is PARTITION else b"a")


def test_what_one_client_knows_of_the_end_does_not_go_back() -> None:
    records = sent()
    records.end_seen("one", PARTITION, 5)
    records.end_seen("one", PARTITION, 5)
    records.end_seen("other", PARTITION, 4)
    with pytest.raises(Violation, match=r"I-11: one is told that .* ends at 4, and it ended at 5"):
        records.end_seen("one", PARTITION, 4)


def test_records_of_one_producer_are_in_the_order_of_their_sending_unless_one_was_given_up() -> None:
    records = sent(b"a", b"b")
    records.failed = 1
    records.check(PARTITION, [(0, b"b"), (1, b"a")])
    records.failed = 0
    with pytest.raises(Violation, match="reversed"):
        records.check(PARTITION, [(0, b"b"), (1, b"a")])


def test_no_order_is_expected_of_several_batches_under_way() -> None:
    records = Records(one_at_a_time=False)
    for value in (b"a", b"b"):
        records.sent(PARTITION, value)
    records.check(PARTITION, [(0, b"b"), (1, b"a")])
