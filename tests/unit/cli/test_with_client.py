"""Messages and advice for the errors of the client."""

from __future__ import annotations

import pytest

from strandline.cli.with_client import explain_error
from strandline.client.errors import BrokerUnreachable, NotABroker
from strandline.model.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    "error",
    [
        NotABroker("this is a controller's listener"),
        KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is not for you"),
    ],
)
def test_an_error_from_a_controller_listener_advises_to_use_a_broker(error: KafkaError) -> None:
    message = str(explain_error(error, "here:19092"))
    assert "here:19092 is a controller listener" in message and "advertised.listeners" in message


def test_an_unreachable_bootstrap_address_is_reported_differently_from_another_unreachable_node() -> None:
    refused = BrokerUnreachable("127.0.0.1:9093: Connection refused")
    assert "no broker responds at 127.0.0.1:9093" in str(explain_error(refused, "127.0.0.1:9093"))
    message = str(explain_error(refused, "127.0.0.1:9092"))
    assert "127.0.0.1:9092 responds" in message and "127.0.0.1:9093: Connection refused" in message
