"""What is served, what is advertised and what docs/SUPPORTED.md promises are one and the same."""

from __future__ import annotations

from strandline.handlers.controllers import OWN_KEYS
from strandline.handlers.tables import BROKER_HANDLERS, FORWARDED
from strandline.node.controller_role import CONTROLLER_METHODS, QUORUM_KEYS
from strandline.protocol.apis import API


def test_brokers_serve_what_the_table_of_apis_says() -> None:
    promised = [key for key, api in API.items() if api.broker and api.served is None]
    assert sorted({*BROKER_HANDLERS, *FORWARDED}) == sorted(promised)


def test_controllers_serve_what_the_table_of_apis_says() -> None:
    promised = [key for key, api in API.items() if api.controller and api.served is None]
    assert sorted({*CONTROLLER_METHODS, *QUORUM_KEYS, *OWN_KEYS}) == sorted(promised)


def test_forwarded_apis_have_somebody_to_answer_them() -> None:
    assert [key for key in FORWARDED if key not in (*CONTROLLER_METHODS, *QUORUM_KEYS)] == []


def test_what_is_forwarded_may_be_in_an_envelope() -> None:
    assert [key for key in FORWARDED if not API[key].forwarded] == []
