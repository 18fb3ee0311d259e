from __future__ import annotations

import pytest

from strandline.client.bootstrap import parse_bootstrap


def test_addresses_are_parsed_with_and_without_ports() -> None:
    found = [str(endpoint) for endpoint in parse_bootstrap("a:1, b.example ,[::1]:9093")]
    assert found == ["a:1", "b.example:9092", "[::1]:9093"]


@pytest.mark.parametrize("text", ["", "a:", "a:b", "a:0", "a:70000", "a:1,,b:2", "http://a:1", "::1"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_bootstrap(text)
