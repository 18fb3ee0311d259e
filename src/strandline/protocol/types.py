"""Types and markers for the declaration of messages, and the fields of a declaration as values.

A message is declared once for all its versions: one class per struct, fields in wire order, Kafka's names in
snake_case, and a marker wherever versions differ:

    class FetchTopic(Struct):
        topic: Annotated[string, until(12)] = ""
        topic_id: Annotated[uuid, since(13)] = ZERO_UUID
        partitions: list[FetchPartition] = []

`X | None` may be null in every version unless a `nullable` marker restricts it. A field without markers exists in every
version. `layout` returns the fields of a class as values, for the compilers in `decoding` and `encoding` and for tests;
it resolves annotations on first use, so that importing a message is cheap.

Messages are values. They are not frozen, because handlers fill in responses; structs that serve as a default are
frozen, because all messages share them.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import field as field

from strandline.model.ids import Uuid
from strandline.runtime.file_slice import FileSlice

NEWEST: Final = 32767
# In bytes of UTF-8, in every version: Kafka limits compact strings to the old two-byte length too.
MAX_STRING_BYTES: Final = 32767


class Primitive(msgspec.Struct, frozen=True):
    """A wire type that is not a struct or a list. `format` is its `struct` code when its width is fixed."""

    name: str
    format: str = ""
    size: int = 0


i8 = Annotated[int, Primitive("int8", "b", 1)]
i16 = Annotated[int, Primitive("int16", "h", 2)]
i32 = Annotated[int, Primitive("int32", "i", 4)]
i64 = Annotated[int, Primitive("int64", "q", 8)]
u16 = Annotated[int, Primitive("uint16", "H", 2)]
u32 = Annotated[int, Primitive("uint32", "I", 4)]
f64 = Annotated[float, Primitive("float64", "d", 8)]
boolean = Annotated[bool, Primitive("bool", "?", 1)]
uuid = Annotated[Uuid, Primitive("uuid", "16s", 16)]
string = Annotated[str, Primitive("string")]
bytes_ = Annotated[bytes, Primitive("bytes")]
# Record batches: decoded as a view of the frame, encoded from a buffer or a slice of a log file.
records_ = Annotated[bytes | bytearray | memoryview | FileSlice, Primitive("records")]


class Versions(msgspec.Struct, frozen=True):
    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Present(Versions, msgspec.Struct, frozen=True):
    """The field exists in these versions only."""


class Nullable(Versions, msgspec.Struct, frozen=True):
    """The field may be null in these versions only."""


class Tag(msgspec.Struct, frozen=True):
    """A tagged field: it has this tag on the wire, and is written only when it differs from its default."""

    number: int


class Ignorable(msgspec.Struct, frozen=True):
    """Marks a field whose value is dropped in versions without it; without this marker that is an EncodeError."""


class NeverCompact(msgspec.Struct, frozen=True):
    """Keeps its classic length prefix in flexible versions (the request header's client id)."""


ignorable = Ignorable()
never_compact = NeverCompact()


def since(version: int) -> Present:
    return Present(version, NEWEST)


def until(version: int) -> Present:
    return Present(0, version)


def between(first: int, last: int) -> Present:
    return Present(first, last)


def nullable(first: int, last: int = NEWEST) -> Nullable:
    return Nullable(first, last)


def tag(number: int) -> Tag:
    return Tag(number)


class DeclarationMeta(msgspec.StructMeta):
    """Takes key and versions in the class statement: `class X(Message, api_key=0, versions=(3, 13), flexible=9)`."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible: int | None = None,
        shared: bool = False,
        **config: Any,
    ) -> DeclarationMeta:
        if shared:
            # Not a keyword of the class, because type checkers reject a frozen subclass of a mutable class.
            config["frozen"] = True
        cls: Any = super().__new__(mcls, name, bases, namespace, **config)
        if versions is not None:
            cls.api_key = api_key
            cls.versions = versions
            cls.flexible = flexible
        return cls  # type: ignore[no-any-return]


class Struct(msgspec.Struct, kw_only=True, gc=False, metaclass=DeclarationMeta):
    """A part of a message. Unknown tagged fields are kept, so that they are forwarded."""

    unknown_tags: dict[int, bytes] | None = None


class Value(Struct, shared=True):
    """A struct that is the default of a field in other declarations: shared, and therefore frozen."""


class Message(Struct):
    """A message. `versions` is the supported range, inclusive; from `flexible` on it is compact and has tags."""

    api_key: ClassVar[int | None] = None
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int | None] = None

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.flexible is not None and version >= cls.flexible


ALWAYS: Final = Versions(0, NEWEST)
NEVER: Final = Versions(1, 0)


class Field(msgspec.Struct, frozen=True):
    """One declared field, for all versions. `kind` is its type, or the type of the elements of its list."""

    name: str
    kind: Primitive | type[Struct]
    is_list: bool
    present: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    never_compact: bool
    default: Any

    def default_value(self) -> Any:
        """A new copy of the default."""
        if self.is_list and self.default is not None:
            return []
        if isinstance(self.default, msgspec.Struct):
            return msgspec.structs.replace(self.default)
        return self.default


@cache
def layout(cls: type[Struct]) -> tuple[Field, ...]:
    """The declared fields of a struct in wire order."""
    hints = get_type_hints(cls, include_extras=True)
    default = cls()
    return tuple(
        _field(name, hints[name], getattr(default, name)) for name in cls.__struct_fields__ if name != "unknown_tags"
    )


def _field(name: str, hint: Any, default: Any) -> Field:
    markers: list[Any] = []
    hint, may_be_null = _strip(hint, markers)
    is_list = get_origin(hint) is list
    if is_list:
        hint, _ = _strip(get_args(hint)[0], markers)
    found: dict[type, Any] = {type(marker): marker for marker in markers}
    return Field(
        name=name,
        kind=found.get(Primitive, hint),
        is_list=is_list,
        present=found.get(Present, ALWAYS),
        nullable=found.get(Nullable, ALWAYS) if may_be_null else NEVER,
        tag=found[Tag].number if Tag in found else None,
        ignorable=Ignorable in found,
        never_compact=NeverCompact in found,
        default=default,
    )


def _strip(hint: Any, markers: list[Any]) -> tuple[Any, bool]:
    """Removes markers and `| None` from a hint, in any order of nesting."""
    may_be_null = False
    while True:
        if get_origin(hint) is Annotated:
            hint, *found = get_args(hint)
            markers.extend(found)
        elif get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            may_be_null = True
            rest = [arm for arm in get_args(hint) if arm is not NoneType]
            hint = rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007
        else:
            return hint, may_be_null
