"""The API table agrees with the declared messages, and docs/SUPPORTED.md with the API table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.supported import page

APIS = list(API.values())
SUPPORTED = Path(__file__).resolve().parents[3] / "docs" / "SUPPORTED.md"


def test_the_keys_are_those_of_kafka_without_the_four_that_were_removed_with_zookeeper() -> None:
    assert sorted(API) == [*range(4), *range(8, 93)]
    assert {api.key for api in APIS} == set(ApiKey)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_agrees_with_the_messages_it_names(api: Api) -> None:
    for message in (api.request, api.response):
        assert message.api_key == api.key
        assert message.versions == (api.min_version, api.max_version)
        assert message.flexible == api.flexible_from
    assert api.request is api.request
    assert api.broker or api.controller


def test_the_advertised_versions_differ_from_the_supported_ones_for_three_apis_only() -> None:
    differing = {
        api.name: (api.advertised_min_version, api.advertised_max_version)
        for api in APIS
        if (api.advertised_min_version, api.advertised_max_version) != (api.min_version, api.max_version)
    }
    assert differing == {"Produce": (0, 13), "InitProducerId": (0, 5), "ListTransactions": (0, 1)}


def test_forwarded_apis_are_served_by_both_listeners() -> None:
    assert all(api.broker and api.controller for api in APIS if api.forwarded)


def test_response_headers_follow_flexibility_except_for_api_versions() -> None:
    assert [API[ApiKey.METADATA].response_header_version(version) for version in (8, 9)] == [0, 1]
    assert [API[ApiKey.API_VERSIONS].response_header_version(version) for version in (2, 3, 4)] == [0, 0, 0]
    assert API[ApiKey.API_VERSIONS].request_header_version(3) == 2
    assert API[ApiKey.SASL_HANDSHAKE].request_header_version(1) == 1


def test_the_supported_page_is_current() -> None:
    assert SUPPORTED.read_text() == page(), "run python -m strandline.protocol.supported > docs/SUPPORTED.md"


def test_importing_the_api_table_does_not_import_messages() -> None:
    program = "import sys, strandline.protocol.framing; print([m for m in sys.modules if '.protocol.messages.' in m])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
