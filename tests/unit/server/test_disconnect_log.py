"""A hostile peer does not fill the log with reasons of disconnects."""

from __future__ import annotations

import logging

import pytest

from strandline.server.disconnect_log import INTERVAL_MS, MAX_ADDRESSES, DisconnectLog


def add(log: DisconnectLog, host: str, now_ms: int, reason: str = "an invalid frame") -> None:
    log.add(logging.WARNING, host, "PLAINTEXT", reason, now_ms)


def test_an_address_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    log = DisconnectLog()
    for number in range(10_000):
        add(log, "10.0.0.1", number)
    add(log, "10.0.0.2", 0)
    log.report(INTERVAL_MS - 1)
    log.report(INTERVAL_MS)
    add(log, "10.0.0.1", INTERVAL_MS + 1, "another reason")
    assert caplog.messages == [
        "closing the connection of 10.0.0.1 on PLAINTEXT: an invalid frame",
        "closing the connection of 10.0.0.2 on PLAINTEXT: an invalid frame",
        "9999 more connections of 10.0.0.1 were closed within a minute",
        "closing the connection of 10.0.0.1 on PLAINTEXT: another reason",
    ]


def test_the_count_is_logged_before_the_next_minute_begins(caplog: pytest.LogCaptureFixture) -> None:
    log = DisconnectLog()
    for now_ms in (0, 1, INTERVAL_MS):
        add(log, "10.0.0.1", now_ms)
    assert len(caplog.messages) == 3
    assert "1 more connections of 10.0.0.1" in caplog.messages[1]


def test_the_number_of_addresses_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = DisconnectLog()
    for number in range(MAX_ADDRESSES + 500):
        add(log, f"host-{number}", 0)
    assert len(log._minutes) == MAX_ADDRESSES + 1
    log.report(INTERVAL_MS)
    assert caplog.messages[-1] == "499 more connections of other addresses were closed within a minute"
    assert log._minutes == {}


def test_reasons_of_different_levels_do_not_hide_each_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = DisconnectLog()
    log.add(logging.INFO, "10.0.0.1", "PLAINTEXT", "idle", 0)
    add(log, "10.0.0.1", 0)
    assert len(caplog.messages) == 2
