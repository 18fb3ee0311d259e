"""Compiles the decoder of one (message, version).

The generated code is straight-line: adjacent fields of fixed width, together with the length prefix or tag count that
follows them, are one `struct` call; lists of structs are inline loops; only tagged fields, which are rare, have
functions of their own. It is total: lengths are checked against the end of the buffer before slicing, counts against
the smallest size of an element before allocating, and reading past the end raises IndexError or struct.error, which
`codec.decode` turns into MalformedMessage. Declarations are not recursive, so neither is the code.

Two bytes on the wire can become a hundred in memory, so the caller limits the number of elements: `left` is reduced by
the count of every list and tag section.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from strandline.model.ids import Uuid
from strandline.protocol.codegen import GeneratedFunction, GeneratedModule, RepeatedFormat
from strandline.protocol.errors import MalformedMessage, TooManyElements
from strandline.protocol.types import MAX_STRING_BYTES, Field, Message, Primitive, Struct, layout
from strandline.records.varint import read_uvarint, rest_of_uvarint
from strandline.runtime.disk import Buffer

_UNPACKED = {code: RepeatedFormat(code) for code in "bhiqHId?"}


def compile_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    flexible = cls.is_flexible(version)
    unit = GeneratedModule(
        f"decode {cls.__name__} v{version}",
        {
            "Uuid": Uuid,
            "MalformedMessage": MalformedMessage,
            "TooManyElements": TooManyElements,
            "read_uvarint": read_uvarint,
            "rest": rest_of_uvarint,
            "keep": _keep_unknown,
            "unknown_tags": _unknown_tags,
        },
    )
    main = unit.function("read(b, p, left)")
    main.line("end = len(b)")
    main.line("view = memoryview(b)")
    reader = _Reader(main, version, flexible)
    result = reader.struct(cls)
    main.line(f"return {result}, p")
    return unit.compile("read")


def smallest_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The smallest encoded size of a struct, in bytes."""
    size = 1 if flexible else 0
    for field in layout(cls):
        if version not in field.present or (field.tag is not None and flexible):
            continue
        if field.is_list:
            size += 1 if flexible else 4
        elif isinstance(field.kind, Primitive):
            size += field.kind.size or _prefix_size(field.kind, flexible and not field.never_compact)
        elif version in field.nullable:
            size += 1
        else:
            size += smallest_size(field.kind, version, flexible)
    return size


def _prefix_size(kind: Primitive, compact: bool) -> int:
    if compact:
        return 1
    return 2 if kind.name == "string" else 4


def _keep_unknown(kept: dict[int, bytes] | None, number: int, data: bytes) -> dict[int, bytes]:
    if kept is None:
        return {number: data}
    if number in kept:
        raise MalformedMessage(f"tag {number} is given twice")
    kept[number] = data
    return kept


def _unknown_tags(b: Buffer, p: int, count: int, end: int) -> tuple[dict[int, bytes] | None, int]:
    """Reads the tag section of a struct that declares no tags."""
    kept: dict[int, bytes] | None = None
    for _ in range(count):
        tag, p = read_uvarint(b, p)
        size, p = read_uvarint(b, p)
        stop = p + size
        if stop > end:
            raise MalformedMessage("a tag is larger than the frame")
        kept = _keep_unknown(kept, tag, bytes(b[p:stop]))
        p = stop
    return kept, p


class _Reader:
    """Generates the code that reads structs, in one function. `run` has the fixed-width reads not generated yet."""

    def __init__(self, body: GeneratedFunction, version: int, flexible: bool) -> None:
        self.body = body
        self.unit = body.unit
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []

    def struct(self, cls: type[Struct]) -> str:
        """Generates the code that reads a `cls`; returns the name of its variable."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for field in layout(cls):
            if self.version not in field.present:
                continue
            if field.tag is not None and self.flexible:
                tagged.append(field)
            elif field.tag is None:
                values[field.name] = self.field(cls, field)
        result = self.unit.unique("x")
        build = self.unit.constant("C", cls, cls)
        if not self.flexible:
            self.flush()
            self.body.line(f"{result} = {build}({self.arguments(cls, values)})")
            return result
        count = self.fixed("B", "t")
        self.flush()
        with self.body.block(f"if {count} == 0:"):
            self.body.line(f"{result} = {build}({self.arguments(cls, values)})")
        with self.body.block("else:"):
            values |= {field.name: self.unit.unique("v") for field in tagged}
            unknown = self.unit.unique("u")
            outputs = "".join(f"{values[field.name]}, " for field in tagged) + unknown
            self.body.line(f"if {count} > 127: {count}, p = rest(b, p, {count})")
            self.count_elements(count, cls.__name__)
            if tagged:
                read = self.tags_function(cls, tagged)
                self.body.line(f"{outputs}, p, left = {read}(b, p, {count}, end, view, left)")
            else:
                self.body.line(f"{outputs}, p = unknown_tags(b, p, {count}, end)")
            self.body.line(f"{result} = {build}({self.arguments(cls, values, whole=True)}unknown_tags={unknown})")
        return result

    def count_elements(self, count: str, where: str) -> None:
        self.body.line(f"left -= {count}")
        self.body.line(f"if left < 0: raise TooManyElements('more elements than are allowed, in {where}')")

    def arguments(self, cls: type[Struct], values: dict[str, str], *, whole: bool = False) -> str:
        """Positional arguments in order; fields that were not read have their defaults, omitted at the end."""
        arguments: list[str] = []
        needed = 0
        for field in layout(cls):
            value = values.get(field.name)
            arguments.append(value if value is not None else self.default(field))
            if value is not None:
                needed = len(arguments)
        return "".join(f"{argument}, " for argument in (arguments if whole else arguments[:needed]))

    def default(self, field: Field) -> str:
        value = field.default
        if value is None or isinstance(value, bool | int | str) or type(value) is bytes:
            return repr(value)
        if isinstance(value, list):
            return "[]"
        if isinstance(value, Struct) and not type(value).__struct_config__.frozen:
            return self.unit.constant("C", type(value), type(value)) + "()"
        return self.unit.constant("D", (field.name, repr(value)), value)

    def fixed(self, code: str, stem: str = "v") -> str:
        name = self.unit.unique(stem)
        self.run.append((code, name))
        return name

    def flush(self) -> None:
        if not self.run:
            return
        codes = ">" + "".join(code for code, _ in self.run)
        names = "".join(f"{name}, " for _, name in self.run)
        uuids = [name for code, name in self.run if code == "16s"]
        self.run.clear()
        if codes == ">B":
            self.body.line(f"{names[:-2]} = b[p]")
            self.body.line("p += 1")
            return
        compiled = struct.Struct(codes)
        self.body.line(f"{names}= {self.unit.constant('S', codes, compiled.unpack_from)}(b, p)")
        self.body.line(f"p += {compiled.size}")
        for name in uuids:
            self.body.line(f"{name} = Uuid({name})")

    def field(self, cls: type[Struct], field: Field) -> str:
        where = f"{cls.__name__}.{field.name}"
        may_be_null = self.version in field.nullable
        if field.is_list:
            return self.list_of(field, where, may_be_null)
        if not isinstance(field.kind, Primitive):
            return self.nested(field.kind, may_be_null, tagged=field.tag is not None)
        if not field.kind.format:
            return self.sized(field.kind, where, may_be_null, compact=self.flexible and not field.never_compact)
        return self.fixed(field.kind.format)

    def nested(self, cls: type[Struct], may_be_null: bool, *, tagged: bool) -> str:
        if not may_be_null:
            return self.struct(cls)
        # A null struct is -1 in an ordinary field but 0 in a tagged one, as Kafka's generator writes it.
        marker = self.fixed("B" if tagged else "b", "m")
        name = self.unit.unique("v")
        self.flush()
        with self.body.block(f"if {marker} == 0:" if tagged else f"if {marker} < 0:"):
            self.body.line(f"{name} = None")
        with self.body.block("else:"):
            self.body.line(f"{name} = {self.struct(cls)}")
        return name

    def length(self, classic: str, compact: bool) -> str:
        """Reads a length or count, -1 for null, in the classic or the compact encoding."""
        if not compact:
            name = self.fixed(classic, "n")
            self.flush()
            return name
        name = self.fixed("B", "n")
        self.flush()
        # Most records and long strings have a length of two bytes: read inline, since a call would cost more.
        two = f"({name} & 127 | b[p] << 7, p + 1)"
        self.body.line(f"if {name} > 127: {name}, p = {two} if b[p] < 128 else rest(b, p, {name})")
        self.body.line(f"{name} -= 1")
        return name

    def sized(self, kind: Primitive, where: str, may_be_null: bool, *, compact: bool) -> str:
        """A string, bytes or records."""
        length = self.length("h" if kind.name == "string" else "i", compact)
        name = self.unit.unique("v")
        if may_be_null:
            self.body.line(f"if {length} < 0: {name} = None")
        with self.body.block("else:" if may_be_null else "if True:"):
            self.body.line(f"q = p + {length}")
            self.body.line(f"if not p <= q <= end: raise MalformedMessage('{where} has an impossible length')")
            if kind.name == "string" and compact:
                too_long = f"{length} > {MAX_STRING_BYTES}"
                self.body.line(f"if {too_long}: raise MalformedMessage('{where} is too long for a string')")
            read = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "view[p:q]"}[kind.name]
            self.body.line(f"{name} = {read}")
            self.body.line("p = q")
        return name

    def list_of(self, field: Field, where: str, may_be_null: bool) -> str:
        count = self.length("i", self.flexible)
        name = self.unit.unique("v")
        if may_be_null:
            self.body.line(f"if {count} < 0: {name} = None")
        with self.body.block("else:" if may_be_null else "if True:"):
            fits = f"0 <= {count} * {self.smallest_element(field)} <= end - p"
            self.body.line(f"if not {fits}: raise MalformedMessage('{where} has an impossible count')")
            self.count_elements(count, where)
            self.elements(field, where, name, count)
        return name

    def smallest_element(self, field: Field) -> int:
        if not isinstance(field.kind, Primitive):
            return max(1, smallest_size(field.kind, self.version, self.flexible))
        return field.kind.size or _prefix_size(field.kind, self.flexible)

    def elements(self, field: Field, where: str, name: str, count: str) -> None:
        kind = field.kind
        if isinstance(kind, Primitive) and kind.name == "uuid":
            self.body.line(f"q = p + {count} * 16")
            self.body.line(f"{name} = [Uuid(b[i:i + 16]) for i in range(p, q, 16)]")
            self.body.line("p = q")
        elif isinstance(kind, Primitive) and kind.format:
            unpack = self.unit.constant("R", kind.format, _UNPACKED[kind.format])
            self.body.line(f"{name} = list({unpack}[{count}](b, p))")
            self.body.line(f"p += {count} * {kind.size}")
        else:
            self.body.line(f"{name} = []")
            with self.body.block(f"for _ in range({count}):"):
                if isinstance(kind, Primitive):
                    element = self.sized(kind, where, may_be_null=False, compact=self.flexible)
                else:
                    element = self.struct(kind)
                self.body.line(f"{name}.append({element})")

    def tags_function(self, cls: type[Struct], tagged: list[Field]) -> str:
        """A function that reads a tag section: (the tagged fields in order, unknown tags or None, position)."""
        name = self.unit.unique("tags")
        body = self.unit.function(f"{name}(b, p, count, end, view, left)")
        reader = _Reader(body, self.version, self.flexible)
        results = {field.name: self.unit.unique("w") for field in tagged}
        for field in tagged:
            body.line(f"{results[field.name]} = {reader.default(field)}")
        body.line("u = None")
        body.line("seen = 0")
        with body.block("for _ in range(count):"):
            body.line("tag, p = read_uvarint(b, p)")
            body.line("size, p = read_uvarint(b, p)")
            body.line("stop = p + size")
            body.line("if stop > end: raise MalformedMessage('a tag is larger than the frame')")
            for index, field in enumerate(tagged):
                with body.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                    body.line(f"if seen & {1 << index}: raise MalformedMessage('tag {field.tag} is given twice')")
                    body.line(f"seen |= {1 << index}")
                    value = reader.field(cls, field)
                    reader.flush()
                    body.line(f"{results[field.name]} = {value}")
            with body.block("else:"):
                body.line("u = keep(u, tag, bytes(b[p:stop]))")
                body.line("p = stop")
            body.line("if p != stop: raise MalformedMessage(f'tag {tag} does not fill its size')")
        body.line(f"return {''.join(f'{results[field.name]}, ' for field in tagged)}u, p, left")
        return name
