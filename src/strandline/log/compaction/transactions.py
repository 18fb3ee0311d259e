"""Transactions during a cleaner pass: which batches are aborted, which markers are still needed.

A machine, one for filling the offset map and one for rewriting the segments; every batch is passed to it in offset
order. A marker may be removed only after all batches of its transaction: the pass that removes those keeps it, and a
later pass finds it without them.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.log.transaction_index import AbortedTransaction
from strandline.records.batch import BatchHeader, ControlType


class CleanerTransactions:
    __slots__ = ("_aborted", "_ahead", "_committed", "_seen", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        """The transactions not yet reached, the next one last."""
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transaction at the current offset, by producer id."""
        self._seen: dict[int, bool] = {}
        """Whether a batch of that transaction was passed, by producer id."""
        self._committed: dict[int, bool] = {}
        """Whether a batch of a committed transaction was passed, by producer id."""
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose markers were kept: the transaction index of the new segment."""

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch: whether its transaction was aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen[header.producer_id] = True
            return True
        self._committed[header.producer_id] = True
        return False

    def on_control_batch(self, header: BatchHeader, kind: int | None) -> bool:
        """A control batch of this type (None when its record was removed before): whether it is no longer needed."""
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if kind is None:
            return True
        if kind == ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            seen = self._seen.pop(producer_id, False)
            if aborted is None or not seen:
                return True
            self.kept.append(aborted)
            return False
        if kind == ControlType.COMMIT:
            return not self._committed.pop(producer_id, False)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        kept, self.kept = self.kept, []
        return kept

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            entry = self._ahead.pop()
            self._aborted.setdefault(entry.producer_id, entry)
