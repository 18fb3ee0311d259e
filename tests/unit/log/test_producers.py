"""Producer state: duplicates, sequences, epochs, transactions, and snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.log import producer_snapshots
from strandline.log.producer_snapshots import CorruptSnapshot, capture, decode, encode
from strandline.log.producers import ProducerStates
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import BatchHeader, read_header
from unit.log.logs import batch

MAX = 0x7FFF_FFFF


def header(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    data = batch(
        count, 1, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=transactional
    )
    return read_header(data)


class Appender:
    """Checks and replays batches as a log does."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def __call__(self, sent: BatchHeader) -> int:
        """The base offset, of the original if it is a duplicate."""
        original = self.states.check(sent)
        if original is not None:
            return original.first_offset
        base_offset = self.end
        self.states.replay(sent, base_offset, 1000)
        self.end += sent.last_offset_delta + 1
        return base_offset

    def marker(self, *, producer_id: int = 7, epoch: int = 0, aborted: bool, coordinator_epoch: int = 0) -> int:
        sent = header(-1, producer_id=producer_id, epoch=epoch, transactional=True)
        self.states.check_marker(sent, coordinator_epoch)
        self.states.replay_marker(sent, self.end, aborted=aborted, coordinator_epoch=coordinator_epoch, seen_ms=1000)
        self.end += 1
        return self.end - 1


@pytest.fixture
def append() -> Appender:
    return Appender()


def rejected(append: Appender, sent: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        append(sent)
    return raised.value.code


def test_only_the_last_five_batches_are_recognised_as_duplicates(append: Appender) -> None:
    for number in range(8):
        assert append(header(number * 2, 2)) == number * 2
    for number in (3, 4, 5, 6, 7):
        assert append(header(number * 2, 2)) == number * 2
    assert append.end == 16
    assert rejected(append, header(4, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_another_length_with_a_known_sequence_is_not_a_duplicate(append: Appender) -> None:
    append(header(0, 2))
    append(header(2, 2))
    assert rejected(append, header(0, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rejected(append, header(2, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_sequences_is_rejected(append: Appender) -> None:
    append(header(0))
    assert rejected(append, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_at_any_sequence(append: Appender) -> None:
    assert append(header(500)) == 0
    assert append(header(501)) == 1


def test_sequences_wrap_to_zero(append: Appender) -> None:
    append(header(MAX - 1, 2))
    assert append(header(0)) == 2
    assert append(header(MAX - 1, 2)) == 0
    append(header(1))
    assert append.states.get(7).last_sequence == 1  # type: ignore[union-attr]


def test_the_sequences_of_a_batch_may_wrap(append: Appender) -> None:
    append(header(MAX - 1, 5))
    assert append(header(3)) == 5
    assert append(header(MAX - 1, 5)) == 0


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_sequence_zero(append: Appender) -> None:
    append(header(0, epoch=3))
    assert rejected(append, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert rejected(append, header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(header(0, epoch=4)) == 1
    assert rejected(append, header(0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_idle_producer_expires_unless_its_transaction_is_open(append: Appender) -> None:
    append(header(0))
    append(header(0, producer_id=8, transactional=True))
    assert append.states.expire(1000 + 99, 100) == 0
    assert append.states.expire(1000 + 100, 100) == 1
    assert append.states.get(7) is None
    assert append.states.get(8) is not None


def test_the_first_unstable_offset_is_that_of_the_oldest_undecided_transaction(append: Appender) -> None:
    append(header(0))
    assert append.states.first_unstable_offset is None
    append(header(0, producer_id=8, transactional=True))
    append(header(0, producer_id=9, transactional=True))
    append(header(1, producer_id=8, transactional=True))
    assert append.states.first_unstable_offset == 1
    ended = append.marker(producer_id=8, aborted=False)
    # Completed, but its marker is not below the high watermark.
    assert append.states.first_unstable_offset == 1
    append.states.on_high_watermark(ended)
    assert append.states.first_unstable_offset == 1
    append.states.on_high_watermark(ended + 1)
    assert append.states.first_unstable_offset == 2
    append.states.on_high_watermark(append.marker(producer_id=9, aborted=True) + 1)
    assert append.states.first_unstable_offset is None


def test_a_batch_outside_of_the_open_transaction_is_rejected(append: Appender) -> None:
    append(header(0, transactional=True))
    assert rejected(append, header(1)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_old_producer_epoch_or_an_old_coordinator_is_rejected(append: Appender) -> None:
    append(header(0, epoch=5, transactional=True))
    with pytest.raises(KafkaError) as raised:
        append.marker(epoch=4, aborted=True)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    append.marker(epoch=5, aborted=True, coordinator_epoch=9)
    with pytest.raises(KafkaError) as raised:
        append.marker(epoch=5, aborted=True, coordinator_epoch=8)
    assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_after_a_marker_with_a_new_epoch_sequences_restart_at_zero(append: Appender) -> None:
    append(header(0, 3, transactional=True))
    append.marker(epoch=1, aborted=False)
    assert append(header(0, epoch=1, transactional=True)) == 4


def test_an_aborted_transaction_records_the_last_stable_offset_after_it(append: Appender) -> None:
    append(header(0, producer_id=8, transactional=True))
    append(header(0, producer_id=9, transactional=True))
    sent = header(-1, producer_id=9, transactional=True)
    completed = append.states.replay_marker(sent, 2, aborted=True, coordinator_epoch=0, seen_ms=0)
    assert completed is not None
    assert append.states.aborted_entry(completed) == (9, 1, 2, 0)
    completed = append.states.replay_marker(
        header(-1, producer_id=8, transactional=True), 3, aborted=True, coordinator_epoch=0, seen_ms=0
    )
    assert completed is not None
    assert append.states.aborted_entry(completed) == (8, 0, 3, 4)


def test_a_snapshot_restores_all_five_batches_and_open_transactions(append: Appender) -> None:
    for number in range(7):
        append(header(number))
    append(header(0, producer_id=8, epoch=2, transactional=True))
    append(header(0, producer_id=9, transactional=True))
    append.marker(producer_id=9, aborted=False, coordinator_epoch=4)

    again = Appender()
    again.states = decode(encode(capture(append.states)), append.end, 5000)
    again.end = append.end

    assert [again(header(number)) for number in range(2, 8)] == [2, 3, 4, 5, 6, 10]
    assert again.states.first_unstable_offset == 7
    assert again.states.get(9).coordinator_epoch == 4  # type: ignore[union-attr]
    assert again.states.get(8).producer_epoch == 2  # type: ignore[union-attr]
    assert again.states.get(8).last_seen_ms == 5000  # type: ignore[union-attr]


def test_a_reader_that_keeps_one_entry_per_producer_gets_the_last_batch(append: Appender) -> None:
    for number in range(7):
        append(header(number))
    entries = list(producer_snapshots._ENTRY.iter_unpack(encode(capture(append.states))[10:]))
    assert [(entry[0], entry[2]) for entry in entries] == [(7, 2), (7, 3), (7, 4), (7, 5), (7, 6)]


def test_a_producer_with_only_a_marker_is_restored_from_a_snapshot() -> None:
    append = Appender()
    append.marker(epoch=6, aborted=True, coordinator_epoch=3)
    states = decode(encode(capture(append.states)), 1, 0)
    state = states.get(7)
    assert state is not None
    assert (state.producer_epoch, state.coordinator_epoch, state.batches) == (6, 3, ())


@given(st.data())
def test_any_change_to_a_snapshot_is_detected(data: st.DataObject) -> None:
    append = Appender()
    for number in range(3):
        append(header(number))
    snapshot = bytearray(encode(capture(append.states)))
    at = data.draw(st.integers(0, len(snapshot) - 1))
    snapshot[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        decode(bytes(snapshot), 0, 0)
    end = data.draw(st.integers(0, len(snapshot) - 1))
    with pytest.raises(CorruptSnapshot):
        decode(encode(capture(append.states))[:end], 0, 0)


def test_a_verification_holds_until_the_transaction_is_open() -> None:
    states = ProducerStates()
    started = states.start_verification(7, 0, 5)
    assert states.start_verification(7, 0, 2) is started and started.lowest_sequence == 2
    assert states.verification(7) is started and not states.has_open_transaction(7, 0)
    states.replay(header(0, transactional=True), 0, 1000)
    assert states.verification(7) is None
    assert states.has_open_transaction(7, 0) and not states.has_open_transaction(7, 1)


def test_a_marker_and_a_newer_epoch_end_a_verification() -> None:
    append = Appender()
    started = append.states.start_verification(7, 0, 0)
    append.marker(producer_id=7, epoch=0, aborted=True)
    assert append.states.verification(7) is None
    assert append.states.start_verification(7, 0, 0) is not started
    newer = append.states.start_verification(7, 1, 0)
    assert newer.producer_epoch == 1
    assert append.states.start_verification(7, 0, 0) is newer, "a batch of an old epoch does not replace it"


def test_offsets_of_a_fenced_producer_are_rejected() -> None:
    append = Appender()
    append.marker(producer_id=7, epoch=3, aborted=False)
    with pytest.raises(KafkaError) as raised:
        append.states.check_coordinator_batch(header(-1, epoch=2, transactional=True))
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    append.states.check_coordinator_batch(header(-1, epoch=3, transactional=True))
