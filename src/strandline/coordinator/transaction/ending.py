"""The end of a transaction: EndTxn (26), aborts of transactions that timed out or were fenced, and completion.

Prepare is the decision: once its record is committed the transaction will be committed or aborted, whatever fails. The
client is answered then, the markers are written to every partition, and a last record completes the transaction.
"""

from __future__ import annotations

import msgspec

from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
)
from strandline.coordinator.transaction.store import NeedsProducerId, TransactionStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.transactions import EndTxnRequest, EndTxnResponse


class WriteMarkers(msgspec.Struct, frozen=True):
    """Effect: the markers of a transaction are to be written to its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    client_version: int


class RetryCompletion(msgspec.Struct, frozen=True):
    """Effect: the markers are written, but the record that completes the transaction could not be appended."""

    markers: WriteMarkers


def end_transaction(
    transactions: TransactionStore,
    request: EndTxnRequest,
    client_version: int,
    new_producer_id: int | None,
    now: Now,
) -> Decision[EndTxnResponse | None]:
    """With transaction.version 2, for a transaction that is not open (a retry has the epoch before the current one):

    state            abort: retry  current           commit: retry  current
    Empty                   fenced prepared                  fenced  INVALID_TXN_STATE
    CompleteAbort           done   prepared                  INVALID_TXN_STATE
    CompleteCommit          INVALID_TXN_STATE, prepared      done    INVALID_TXN_STATE
    """
    raises_epoch = client_version >= EPOCH_BUMP_VERSION
    transaction = _check(transactions, request) if not raises_epoch else _check_with_retries(transactions, request)
    is_retry = raises_epoch and _is_retry(transaction, request)
    state = transaction.state
    if state is State.ONGOING:
        wanted = State.PREPARE_COMMIT if request.committed else State.PREPARE_ABORT
        return _prepared(transactions, transaction, wanted, client_version, new_producer_id, now)
    if state is (State.PREPARE_COMMIT if request.committed else State.PREPARE_ABORT):
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"the transaction of {transaction.transactional_id!r} is being ended already",
        )
    completed = State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT
    if state is completed and is_retry is raises_epoch:
        return Decision(_response(transaction, client_version))
    if raises_epoch and not is_retry and not request.committed and not transaction.is_prepared:
        # A client of version 2 does not know whether a partition was added, so it may abort an empty transaction.
        return _prepared(transactions, transaction, State.PREPARE_ABORT, client_version, new_producer_id, now)
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{transaction.transactional_id!r} has no transaction to end like that: it is in {state.wire_name}",
    )


def _check(transactions: TransactionStore, request: EndTxnRequest) -> Transaction:
    transaction = transactions.check(request.transactional_id, request.producer_id)
    if request.producer_epoch != transaction.producer_epoch:
        raise _fenced(transaction, request)
    return transaction


def _check_with_retries(transactions: TransactionStore, request: EndTxnRequest) -> Transaction:
    """With transaction.version 2 the current epoch belongs to the next transaction, and the one before it to a retry
    of the request that ended the last one."""
    known = transactions.find(request.transactional_id)
    is_rotated = known is not None and _is_retry_of_rotation(known, request)
    if known is None or not is_rotated:
        known = transactions.check(request.transactional_id, request.producer_id)
    is_current = request.producer_epoch == known.producer_epoch
    is_retry = request.producer_epoch + 1 == known.producer_epoch
    if known.is_prepared:
        is_valid = is_retry
    elif known.is_complete:
        is_valid = is_retry or is_rotated or is_current
    else:
        is_valid = is_current and not is_rotated
    if not is_valid:
        raise _fenced(known, request)
    return known


def _fenced(transaction: Transaction, request: EndTxnRequest) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.transactional_id!r} is at producer epoch {transaction.producer_epoch}, "
        f"not {request.producer_epoch}",
    )


def _is_retry(transaction: Transaction, request: EndTxnRequest) -> bool:
    """The request has ended this transaction already, and its response was lost."""
    return request.producer_epoch + 1 == transaction.producer_epoch or _is_retry_of_rotation(transaction, request)


def _is_retry_of_rotation(transaction: Transaction, request: EndTxnRequest) -> bool:
    return (
        transaction.previous_producer_id == request.producer_id != transaction.producer_id
        and request.producer_epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )


def _prepared(
    transactions: TransactionStore,
    transaction: Transaction,
    state: State,
    client_version: int,
    new_producer_id: int | None,
    now: Now,
) -> Decision[EndTxnResponse | None]:
    raises_epoch = client_version >= EPOCH_BUMP_VERSION
    next_producer_id = NO_PRODUCER_ID
    if raises_epoch and transaction.is_epoch_exhausted:
        if new_producer_id is None:
            raise NeedsProducerId
        next_producer_id = new_producer_id
    following = prepare(transaction, state, client_version, next_producer_id, now)
    transactions.put(following)
    return Decision(
        _response(following, client_version),
        [transactions.record(following)],
        is_applied=True,
        effects=[markers_of(transactions, following)],
    )


def prepare(
    transaction: Transaction, state: State, client_version: int, next_producer_id: int, now: Now
) -> Transaction:
    changes: dict[str, object] = {"client_version": client_version, "next_producer_id": next_producer_id}
    if client_version >= EPOCH_BUMP_VERSION:
        changes |= {
            "producer_epoch": transaction.producer_epoch + 1,
            "last_producer_epoch": transaction.producer_epoch,
        }
    if transaction.state is not State.ONGOING:
        # No partition was added, so the transaction has had no start.
        changes["start_ms"] = now.wall_ms
    return transaction.become(state, now.wall_ms, **changes)


def fence_and_abort(transactions: TransactionStore, transaction: Transaction, now: Now) -> Decision[None]:
    """Raises the epoch, so that the producer of the open transaction is fenced, and aborts it."""
    raises_epochs = transactions.settings.transaction_version >= EPOCH_BUMP_VERSION
    following = transaction.become(
        State.PREPARE_ABORT,
        now.wall_ms,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=NO_EPOCH,
        client_version=EPOCH_BUMP_VERSION if raises_epochs else 0,
    )
    transactions.put(following)
    return Decision(
        None, [transactions.record(following)], is_applied=True, effects=[markers_of(transactions, following)]
    )


def is_overdue(transaction: Transaction, now: Now) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms + transaction.timeout_ms < now.wall_ms


def markers_of(transactions: TransactionStore, transaction: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transactions.coordinator_epoch,
        transaction.state is State.PREPARE_COMMIT,
        tuple(sorted(transaction.partitions)),
        transaction.client_version,
    )


def complete(transactions: TransactionStore, markers: WriteMarkers, now: Now) -> Decision[None]:
    """All markers are written. Nothing happens if the transaction was completed or ended otherwise meanwhile."""
    transaction = transactions.find(markers.transactional_id)
    is_current = (
        transaction is not None
        and transaction.is_prepared
        and (transaction.producer_id, transaction.producer_epoch) == (markers.producer_id, markers.producer_epoch)
    )
    if transaction is None or not is_current:
        return Decision(None)
    state = State.COMPLETE_COMMIT if transaction.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    changes: dict[str, object] = {"partitions": frozenset(), "next_producer_id": NO_PRODUCER_ID}
    if transaction.next_producer_id != NO_PRODUCER_ID:
        changes |= {
            "producer_id": transaction.next_producer_id,
            "producer_epoch": 0,
        }
    following = transaction.become(state, now.wall_ms, **changes)
    transactions.put(following)
    return Decision(
        None,
        [transactions.record(following)],
        is_applied=True,
        on_append_failed=lambda code, then: Decision(None, effects=[RetryCompletion(markers)]),
    )


def _response(transaction: Transaction, client_version: int) -> EndTxnResponse:
    """With version 2 the client learns the producer id and epoch of its next transaction."""
    if client_version < EPOCH_BUMP_VERSION:
        return EndTxnResponse()
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return EndTxnResponse(producer_id=transaction.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
