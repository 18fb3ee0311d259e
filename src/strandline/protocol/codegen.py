"""Python source made at run time: the paper on which `decoding` and `encoding` write their straight-line code.

A `Unit` is one compiled (message, version): its functions and the constants they name. A `Body` is the text of one
function. Reading and writing a byte costs a function call in Python unless the code for the whole message is one
function, which is why messages are compiled rather than interpreted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Unit:
    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self.names = dict(names)
        self.functions: list[Body] = []
        self._count = 0
        self._constants: dict[tuple[str, Any], str] = {}

    def unique(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, key: Any, value: Any) -> str:
        """The global name of `value`; the same key is stored once."""
        name = self._constants.get((stem, key))
        if name is None:
            name = self._constants[stem, key] = self.unique(stem)
            self.names[name] = value
        return name

    def function(self, signature: str) -> Body:
        body = Body(self)
        self.functions.append(body)
        body.line(f"def {signature}:")
        body.depth = 1
        return body

    def compile(self, entry: str) -> Callable[..., Any]:
        text = "\n".join(line for body in self.functions for line in body.lines)
        exec(compile(text, f"<{self.title}>", "exec"), self.names)
        return self.names[entry]  # type: ignore[no-any-return]


class Body:
    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1


class Repeated(dict[int, Callable[..., Any]]):
    """`unpack_from` (or `pack`) of n numbers of one kind, by n; short ones are kept."""

    def __init__(self, code: str, *, packing: bool = False) -> None:
        super().__init__()
        self.code = code
        self.packing = packing

    def __missing__(self, count: int) -> Callable[..., Any]:
        compiled = struct.Struct(f">{count}{self.code}")
        call: Callable[..., Any] = compiled.pack if self.packing else compiled.unpack_from
        if count <= 64:
            self[count] = call
        return call
