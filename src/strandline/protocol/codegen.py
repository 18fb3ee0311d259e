"""Python source generated at run time, for `decoding` and `encoding`.

A `GeneratedModule` is the codec of one (message, version): its functions and the constants that they use. A
`GeneratedFunction` is the source of one function. Messages are compiled rather than interpreted because interpreting
costs Python a function call for every field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class GeneratedModule:
    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self.names = dict(names)
        self.functions: list[GeneratedFunction] = []
        self._count = 0
        self._constants: dict[tuple[str, Any], str] = {}

    def unique(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, key: Any, value: Any) -> str:
        """The global name of `value`. Values with the same key are stored once."""
        name = self._constants.get((stem, key))
        if name is None:
            name = self._constants[stem, key] = self.unique(stem)
            self.names[name] = value
        return name

    def function(self, signature: str) -> GeneratedFunction:
        body = GeneratedFunction(self)
        self.functions.append(body)
        body.line(f"def {signature}:")
        body.depth = 1
        return body

    def compile(self, entry: str) -> Callable[..., Any]:
        text = "\n".join(line for body in self.functions for line in body.lines)
        exec(compile(text, f"<{self.title}>", "exec"), self.names)
        return self.names[entry]  # type: ignore[no-any-return]


class GeneratedFunction:
    def __init__(self, unit: GeneratedModule) -> None:
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


class RepeatedFormat(dict[int, Callable[..., Any]]):
    """n → `unpack_from` (or `pack`) of n numbers of one format; those of up to 64 numbers are cached."""

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
