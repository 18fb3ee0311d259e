"""Compiles the encoder of one (message, version): `write(message, out, parts)`.

Small buffers are appended to `out` and joined once. A large `records` value or a file slice is not copied: `out` is
joined into a part, and the value becomes a part of its own. As in `decoding`, adjacent fields of fixed width are one
`struct` call, together with the empty tag section that usually follows them.

A value in a field that the version does not have is an EncodeError, unless the field is declared ignorable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from strandline.protocol.codegen import GeneratedFunction, GeneratedModule, RepeatedFormat
from strandline.protocol.errors import EncodeError
from strandline.protocol.types import MAX_STRING_BYTES, Field, Message, Primitive, Struct, layout
from strandline.records.varint import ONE_BYTE, uvarint
from strandline.runtime.file_slice import FileSlice, Part

# Below this size a copy is cheaper than another buffer for the socket.
OWN_PART_BYTES = 8192

_PACKED = {code: RepeatedFormat(code, packing=True) for code in "bhiqHId?"}

Encoder = Callable[[Any, list[Any], list[Part]], None]


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    flexible = cls.is_flexible(version)
    unit = GeneratedModule(
        f"encode {cls.__name__} v{version}",
        {
            "EncodeError": EncodeError,
            "uvarint": uvarint,
            "ONE": ONE_BYTE,
            "FileSlice": FileSlice,
            "emit_tags": _emit_tags,
        },
    )
    main = unit.function("write(x, out, parts)")
    main.line("a = out.append")
    writer = _Writer(main, version, flexible)
    writer.struct(cls, "x")
    writer.flush()
    return unit.compile("write")


def _emit_tags(append: Callable[[bytes], None], unknown: dict[int, bytes] | None, known: dict[int, bytes]) -> None:
    """Appends the tag section, in ascending order of tags."""
    if unknown:
        for number in unknown:
            if number in known:
                raise EncodeError(f"tag {number} is given twice, as a field and as an unknown tag")
        known |= unknown
    append(uvarint(len(known)))
    for number in sorted(known):
        append(uvarint(number))
        append(uvarint(len(known[number])))
        append(known[number])


class _Writer:
    """Generates the code that writes structs, in one function. `run` has the fixed-width values not generated yet."""

    def __init__(self, body: GeneratedFunction, version: int, flexible: bool) -> None:
        self.body = body
        self.unit = body.unit
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []

    def struct(self, cls: type[Struct], x: str) -> None:
        tagged: list[Field] = []
        for field in layout(cls):
            if self.version not in field.present or (field.tag is not None and not self.flexible):
                self.reject_unless_default(cls, field, x)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.field(cls, field, f"{x}.{field.name}")
        if self.flexible:
            self.tag_section(cls, tagged, x)
        else:
            why = f"{cls.__name__} has tags that version {self.version} cannot carry"
            self.body.line(f"if {x}.unknown_tags: raise EncodeError('{why}')")

    def reject_unless_default(self, cls: type[Struct], field: Field, x: str) -> None:
        if field.ignorable:
            return
        self.body.line(
            f"if not ({self.is_default(field, f'{x}.{field.name}')}): "
            f"raise EncodeError('{cls.__name__}.{field.name} is set, but version {self.version} has no such field')"
        )

    def is_default(self, field: Field, value: str) -> str:
        """An expression that is true when `value` is the field's default."""
        default = field.default
        if default is None:
            return f"{value} is None"
        if isinstance(default, bool | int | str) or type(default) is bytes:
            return f"{value} == {default!r}"
        if isinstance(default, list):
            return f"{value} == []"
        constant = self.unit.constant("D", (field.name, repr(default)), default)
        return f"{value} is {constant} or {value} == {constant}"

    def fixed(self, code: str, value: str) -> None:
        self.run.append((code, value))

    def flush(self, ending: str = "") -> None:
        """Generates the write of the run, with a pad byte (`x`) after it if `ending` is "x". Keeps the run, since two
        branches may need it."""
        codes = ">" + "".join(code for code, _ in self.run) + ending
        values = ", ".join(value for _, value in self.run)
        if codes == ">x":
            self.body.line("a(b'\\0')")
        elif codes != ">":
            self.body.line(f"a({self.unit.constant('P', codes, struct.Struct(codes).pack)}({values}))")

    def flush_and_clear(self) -> None:
        self.flush()
        self.run.clear()

    def field(self, cls: type[Struct], field: Field, value: str) -> None:
        where = f"{cls.__name__}.{field.name}"
        may_be_null = self.version in field.nullable
        if field.is_list:
            self.list_of(field, where, value, may_be_null)
        elif not isinstance(field.kind, Primitive):
            self.nested(field.kind, value, may_be_null, tagged=field.tag is not None)
        elif field.kind.format:
            self.fixed(field.kind.format, value)
        else:
            self.sized(field.kind, where, value, may_be_null, compact=self.flexible and not field.never_compact)

    def nested(self, cls: type[Struct], value: str, may_be_null: bool, *, tagged: bool) -> None:
        name = self.unit.unique("x")
        self.body.line(f"{name} = {value}")
        if not may_be_null:
            self.struct(cls, name)
            return
        self.flush_and_clear()
        null = "b'\\0'" if tagged else "b'\\xff'"
        self.body.line(f"if {name} is None: a({null})")
        with self.body.block("else:"):
            self.fixed("b", "1")
            self.struct(cls, name)
            self.flush_and_clear()

    def length(self, classic: str, count: str, compact: bool) -> None:
        """Generates the write of a length or count, which ends the run."""
        if not compact:
            self.fixed(classic, count)
            self.flush_and_clear()
            return
        if not self.run:
            self.body.line(f"a(ONE[{count} + 1] if {count} < 127 else uvarint({count} + 1))")
            return
        with self.body.block(f"if {count} < 127:"):
            self.run.append(("B", f"{count} + 1"))
            self.flush()
            self.run.pop()
        with self.body.block("else:"):
            self.flush()
            self.body.line(f"a(uvarint({count} + 1))")
        self.run.clear()

    def null(self, classic: str, compact: bool) -> None:
        self.body.line(
            "a(b'\\0')" if compact else "a(b'\\xff\\xff')" if classic == "h" else "a(b'\\xff\\xff\\xff\\xff')"
        )

    def sized(self, kind: Primitive, where: str, value: str, may_be_null: bool, *, compact: bool) -> None:
        """A string, bytes or records."""
        is_string = kind.name == "string"
        classic = "h" if is_string else "i"
        name, count = self.unit.unique("s"), self.unit.unique("n")
        self.body.line(f"{name} = {value}")
        if may_be_null:
            self.flush_and_clear()
            with self.body.block(f"if {name} is None:"):
                self.null(classic, compact)
        with self.body.block("else:" if may_be_null else "if True:"):
            if is_string:
                self.body.line(f"{name} = {name}.encode()")
            self.body.line(f"{count} = len({name})")
            if is_string:
                too_long = f"{count} > {MAX_STRING_BYTES}"
                self.body.line(f"if {too_long}: raise EncodeError('{where} is too long for a string')")
            self.length(classic, count, compact)
            if kind.name == "records":
                self.records(name, count)
            else:
                self.body.line(f"a({name})")

    def records(self, name: str, count: str) -> None:
        self.body.line(f"if {count} < {OWN_PART_BYTES} and {name}.__class__ is not FileSlice: a({name})")
        with self.body.block("else:"):
            self.body.line("parts.append(b''.join(out))")
            self.body.line("out.clear()")
            self.body.line(f"parts.append({name})")

    def list_of(self, field: Field, where: str, value: str, may_be_null: bool) -> None:
        name, count = self.unit.unique("l"), self.unit.unique("n")
        self.body.line(f"{name} = {value}")
        if may_be_null:
            self.flush_and_clear()
            with self.body.block(f"if {name} is None:"):
                self.null("i", self.flexible)
        with self.body.block("else:" if may_be_null else "if True:"):
            self.body.line(f"{count} = len({name})")
            self.length("i", count, self.flexible)
            self.elements(field, where, name, count)

    def elements(self, field: Field, where: str, name: str, count: str) -> None:
        kind = field.kind
        if isinstance(kind, Primitive) and kind.name == "uuid":
            self.body.line(f"a(b''.join({name}))")
        elif isinstance(kind, Primitive) and kind.format:
            pack = self.unit.constant("R", kind.format, _PACKED[kind.format])
            self.body.line(f"a({pack}[{count}](*{name}))")
        else:
            element = self.unit.unique("x")
            with self.body.block(f"for {element} in {name}:"):
                if isinstance(kind, Primitive):
                    self.sized(kind, where, element, may_be_null=False, compact=self.flexible)
                else:
                    self.struct(kind, element)
                    self.flush_and_clear()

    def tag_section(self, cls: type[Struct], tagged: list[Field], x: str) -> None:
        """Ends the run. The usual struct without tags costs one comparison per tagged field."""
        bare = [f"{x}.unknown_tags is None"]
        bare += [f"({self.is_default(field, f'{x}.{field.name}')})" for field in tagged]
        with self.body.block(f"if {' and '.join(bare)}:"):
            self.flush("x")
        with self.body.block("else:"):
            self.flush()
            if tagged:
                self.body.line(f"{self.tags_function(cls, tagged)}({x}, a)")
            else:
                self.body.line(f"emit_tags(a, {x}.unknown_tags, {{}})")
        self.run.clear()

    def tags_function(self, cls: type[Struct], tagged: list[Field]) -> str:
        name = self.unit.unique("tags")
        body = self.unit.function(f"{name}(x, sink)")
        body.line("known = {}")
        writer = _Writer(body, self.version, self.flexible)
        for field in tagged:
            with body.block(f"if not ({writer.is_default(field, f'x.{field.name}')}):"):
                body.line("out = []")
                body.line("a = out.append")
                writer.field(cls, field, f"x.{field.name}")
                writer.flush_and_clear()
                body.line(f"known[{field.tag}] = b''.join(out)")
        body.line("emit_tags(sink, x.unknown_tags, known)")
        return name
