"""Errors that the client raises besides those of responses; each carries an `ErrorCode`.

KafkaError
├─ BrokerUnreachable   no broker responded at any known address
├─ ConnectionLost      the connection ended before the response arrived: the request may or may not have taken effect
├─ RequestTimedOut     no response in time, with the same uncertainty
├─ UnsupportedVersion  the broker does not serve the API, or no version of it that this client supports
│  └─ NotABroker       this is a controller listener
├─ ProtocolViolation   the peer does not speak Kafka's protocol
├─ RecordTooLarge      above the producer's own limit; the record was not sent
└─ RecordsRejected     a broker rejected a batch; `record_errors` has the reason by record
"""

from __future__ import annotations

from strandline.model.errors import ErrorCode, KafkaError, code_of


class BrokerUnreachable(KafkaError):
    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, why)


class ConnectionLost(KafkaError):
    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, why)


class RequestTimedOut(KafkaError):
    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, why)


class UnsupportedVersion(KafkaError):
    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, why)


class NotABroker(UnsupportedVersion):
    pass


class ProtocolViolation(KafkaError):
    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, why)


class RecordTooLarge(KafkaError):
    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        why = f"the record takes {size_bytes} bytes, and this producer sends at most {limit_bytes}"
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, why)


class RecordsRejected(KafkaError):
    def __init__(self, code: ErrorCode, why: str, record_errors: dict[int, str]) -> None:
        super().__init__(code, why)
        self.record_errors = record_errors


# No response arrived: a retry, at the same or another broker, may succeed.
TRANSPORT_ERRORS = (BrokerUnreachable, ConnectionLost, RequestTimedOut)


def error_of(number: int, why: str | None = None) -> KafkaError:
    code = code_of(number)
    known = "" if code == number else f"error code {number}"
    return KafkaError(code, why or known)
