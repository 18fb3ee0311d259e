from __future__ import annotations

import io
import sys

import pytest

from strandline.cli.output import print_facts, print_json_line, print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS = [("orders", 3, None), ("a", 12, [1, 2])]


def test_a_terminal_gets_an_aligned_table_with_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    print_table(("TOPIC", "N", "IDS"), ROWS)
    assert screen.getvalue() == "TOPIC   N   IDS\norders  3   -\na       12  1,2\n"


def test_a_pipe_gets_tabs_and_no_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("TOPIC", "N", "IDS"), ROWS)
    print_table(("TOPIC", "N", "IDS"), ROWS[:1], kind="topic")
    print_facts([("name", True)])
    assert capsys.readouterr().out == "orders\t3\t-\na\t12\t1,2\ntopic\torders\t3\t-\nname\tyes\n"


def test_colour_is_used_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    print_facts([("name", "value")])
    assert screen.getvalue() == "\x1b[2mname\x1b[0m  value\n"


def test_json_lines_are_one_line_with_unescaped_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    print_json_line({"a": "é\n", "b": [1]})
    assert capsys.readouterr().out == '{"a":"é\\n","b":[1]}\n'
