"""Transactions as the cleaner passes them: which batches were aborted, which markers still have something to end.

A machine, one for each pass over a log (filling the offset map, rewriting segments). It must be told of every batch in
order of offsets. A marker may go only after all batches of its transaction are gone: the pass that drops them keeps it,
a later one finds it alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.log.transaction_index import AbortedTransaction
from strandline.records.batch import BatchHeader, ControlType


class CleanedTransactions:
    __slots__ = ("_aborted", "_ahead", "_committed", "_seen", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Not yet reached, the next one last.
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # By producer id: what the batches at the present offset belong to.
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: dict[int, bool] = {}
        self._committed: dict[int, bool] = {}
        # Aborted transactions whose markers were kept: the transaction index of what is written.
        self.kept: list[AbortedTransaction] = []

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch: whether it was aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen[header.producer_id] = True
            return True
        self._committed[header.producer_id] = True
        return False

    def on_control_batch(self, header: BatchHeader, kind: int | None) -> bool:
        """A control batch of this kind (None when its record was removed before): whether it ends nothing any more."""
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
