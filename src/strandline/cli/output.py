"""How commands print: tables and colour on a terminal, tab-separated lines in a pipe, JSON with --json.

Data goes to standard output; progress and hints go to standard error, so that a pipe carries data only.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

SLOW_SECONDS = 2.0


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def styled(text: str, code: str, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    if not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def bold(text: str) -> str:
    return styled(text, "1")


def faint(text: str) -> str:
    return styled(text, "2")


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], kind: str | None = None) -> None:
    """Aligned columns with headings on a terminal; in a pipe one tab-separated line per row, without headings.

    If a command prints several tables, `kind` is the first field of each line in a pipe and identifies the table."""
    texts = [[cell_text(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in texts:
            print("\t".join(row if kind is None else [kind, *row]))
        return
    widths = [max([len(column), *(len(row[index]) for row in texts)]) for index, column in enumerate(columns)]
    print("  ".join(bold(column.ljust(width)) for column, width in zip(columns, widths, strict=True)).rstrip())
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values: aligned on a terminal, tab-separated in a pipe."""
    pairs = [(name, cell_text(value)) for name, value in facts]
    if not sys.stdout.isatty():
        for name, text in pairs:
            print(f"{name}\t{text}")
        return
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        print(f"{faint(name.ljust(width))}  {text}")


def print_section(title: str) -> None:
    """A heading between tables, on a terminal only."""
    if sys.stdout.isatty():
        print(f"\n{bold(title)}")


def text_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """A JSON field with these bytes as text; bytes that are not UTF-8 in base64, as `{name}_base64`."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def hint(message: str) -> None:
    print(styled(message, "2", sys.stderr), file=sys.stderr)


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value) or "-"
    return str(value)


class Progress:
    """Prints what the command is doing after two seconds, and repeatedly after that.

    with Progress("waiting for the broker"):
        …
    """

    def __init__(self, doing: str | Callable[[], str]) -> None:
        self._doing = doing
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        redraw = is_terminal(sys.stderr)
        shown = ""
        pause = SLOW_SECONDS
        while not self._done.wait(pause):
            text = (self._doing if isinstance(self._doing, str) else self._doing()) + " …"
            if redraw:
                print("\r" + text.ljust(len(shown)), end="", file=sys.stderr, flush=True)
            elif text != shown:
                print(text, file=sys.stderr, flush=True)
            shown = text
            pause = 0.2 if redraw else min(60.0, pause * 2)
        if redraw and shown:
            print("\r" + " " * len(shown) + "\r", end="", file=sys.stderr, flush=True)
