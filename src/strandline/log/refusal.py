"""The answer to records that a leader does not take."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.model.errors import ErrorCode, KafkaError


class InvalidRecords(KafkaError):
    """Why a batch was not appended. `record_errors` are (index within the batch, reason), for the records that made the
    whole batch fail; empty when it was not about single records."""

    def __init__(self, code: ErrorCode, why: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, why)
        self.record_errors = list(record_errors)
