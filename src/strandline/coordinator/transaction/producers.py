"""InitProducerId (22) with a transactional id: a producer id and epoch for the client, older producers fenced.

A new client of an id gets the next epoch. A transaction that is still open is aborted first; the client is answered
CONCURRENT_TRANSACTIONS and asks again. A client that continues (KIP-360) sends the id and epoch that it has, so that a
retry is not taken for a second request.
"""

from __future__ import annotations

from strandline.coordinator.decision import Decision, Now, merged
from strandline.coordinator.transaction import ending
from strandline.coordinator.transaction.state import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, State, Transaction
from strandline.coordinator.transaction.store import NeedsProducerId, TransactionStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    transactions: TransactionStore, request: InitProducerIdRequest, new_producer_id: int | None, now: Now
) -> Decision[InitProducerIdResponse | None]:
    transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    longest_ms = transactions.settings.max_timeout_ms
    if not 0 < timeout_ms <= longest_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"the timeout {timeout_ms} is not within 1 and transaction.max.timeout.ms {longest_ms}",
        )
    known = transactions.find(transactional_id)
    if known is None:
        known = Transaction(
            transactional_id=transactional_id,
            producer_id=_given(new_producer_id),
            producer_epoch=NO_EPOCH,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            last_update_ms=now.wall_ms,
        )
    if request.producer_id != NO_PRODUCER_ID and not _may_continue(known, request):
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED, f"transactional id {transactional_id!r} has a newer producer than this one"
        )
    if known.is_prepared:
        raise _concurrent(transactional_id)
    if known.state is State.ONGOING:
        aborting = ending.fence_and_abort(transactions, known, now)
        aborting.error = _concurrent(transactional_id)
        return merged(Decision(None), aborting)
    following = _next(known, request, new_producer_id, now)
    transactions.put(following)
    response = InitProducerIdResponse(producer_id=following.producer_id, producer_epoch=following.producer_epoch)
    return Decision(response, [transactions.record(following)], is_applied=True)


def _may_continue(known: Transaction, request: InitProducerIdRequest) -> bool:
    is_retry_of_rotation = request.producer_id == known.previous_producer_id and request.producer_epoch >= LAST_EPOCH
    return known.producer_epoch == NO_EPOCH or request.producer_id == known.producer_id or is_retry_of_rotation


def _next(known: Transaction, request: InitProducerIdRequest, new_producer_id: int | None, now: Now) -> Transaction:
    has_epoch = request.producer_id != NO_PRODUCER_ID
    changes: dict[str, object] = {
        "timeout_ms": request.transaction_timeout_ms,
        "partitions": frozenset(),
        "start_ms": -1,
    }
    if known.is_epoch_exhausted and (not has_epoch or request.producer_epoch == known.producer_epoch):
        return known.become(
            State.EMPTY,
            now.wall_ms,
            producer_id=_given(new_producer_id),
            producer_epoch=0,
            last_producer_epoch=known.producer_epoch if has_epoch else NO_EPOCH,
            **changes,
        )
    if not has_epoch:
        changes |= {"producer_epoch": known.producer_epoch + 1, "last_producer_epoch": NO_EPOCH}
    elif known.producer_epoch == NO_EPOCH or request.producer_epoch == known.producer_epoch:
        changes |= {"producer_epoch": known.producer_epoch + 1, "last_producer_epoch": known.producer_epoch}
    elif request.producer_epoch != known.last_producer_epoch:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED, f"producer {known.producer_id} is at epoch {known.producer_epoch} by now"
        )
    return known.become(State.EMPTY, now.wall_ms, **changes)


def _given(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerId
    return producer_id


def _concurrent(transactional_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transactional_id!r} is still being ended"
    )
