"""What a caller of the client can meet beyond the errors that a broker answers: each still carries an `ErrorCode`.

KafkaError
├─ BrokerUnreachable   nobody answered at any address we know
├─ ConnectionLost      the connection ended before the answer came: what was asked may or may not have been done
├─ RequestTimedOut        no answer in time, with the same uncertainty
├─ UnsupportedVersion        this broker does not speak the API, or no version of it that we speak
│  └─ NotABroker       a controller's listener, where clients have nothing to look for
├─ ProtocolViolation           the peer does not speak Kafka's protocol
├─ RecordTooLarge      this producer does not send records of this size; no broker was asked
└─ RecordsRejected      a broker refused a batch; `record_errors` says which records and why
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


# The answer never came or the broker is gone: asking another broker, or the same one again, may help.
TRANSPORT_ERRORS = (BrokerUnreachable, ConnectionLost, RequestTimedOut)


def error_of(number: int, why: str | None = None) -> KafkaError:
    code = code_of(number)
    known = "" if code == number else f"error code {number}"
    return KafkaError(code, why or known)
