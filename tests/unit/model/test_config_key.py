from __future__ import annotations

import pytest

from strandline.model.config_keys.key import (
    Between,
    ConfigError,
    ConfigKey,
    ConfigKind,
    Items,
    NonEmpty,
    OneOf,
    by_name,
    text_of,
)


def key(kind: ConfigKind, **rules: object) -> ConfigKey:
    return ConfigKey("some.key", kind, None, "A key.", **rules)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigKind.BOOLEAN, " TRUE ", True),
        (ConfigKind.BOOLEAN, "false", False),
        (ConfigKind.STRING, " a b ", "a b"),
        (ConfigKind.INT, "+7", 7),
        (ConfigKind.INT, "-2147483648", -(2**31)),
        (ConfigKind.SHORT, "32767", 32767),
        (ConfigKind.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigKind.DOUBLE, ".5", 0.5),
        (ConfigKind.DOUBLE, "1e3", 1000.0),
        (ConfigKind.LIST, " a , b ", ("a", "b")),
        (ConfigKind.LIST, "", ()),
        (ConfigKind.LIST, "a,,b", ("a", "", "b")),
        (ConfigKind.CLASS, "com.example.Thing", "com.example.Thing"),
        (ConfigKind.PASSWORD, "secret", "secret"),
    ],
)
def test_a_text_is_parsed_by_the_type_of_its_key(kind: ConfigKind, text: str, value: object) -> None:
    assert key(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigKind.BOOLEAN, "yes"),
        (ConfigKind.INT, "2147483648"),
        (ConfigKind.INT, "1.0"),
        (ConfigKind.INT, "1_000"),
        (ConfigKind.INT, ""),
        (ConfigKind.INT, "٣"),
        (ConfigKind.INT, "9" * 5000),
        (ConfigKind.SHORT, "32768"),
        (ConfigKind.LONG, "9223372036854775808"),
        (ConfigKind.DOUBLE, "nan"),
        (ConfigKind.DOUBLE, "inf"),
        (ConfigKind.DOUBLE, "1,5"),
        (ConfigKind.CLASS, " "),
    ],
)
def test_a_text_of_another_type_is_rejected_with_the_name_of_its_key(kind: ConfigKind, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        key(kind).parse(text)
    assert error.value.key == "some.key"
    assert error.value.value == text
    assert "must be" in error.value.why


def test_the_error_of_a_number_out_of_bounds_contains_the_bounds() -> None:
    bounded = key(ConfigKind.INT, allowed=Between(1, 9, also=-1))
    assert bounded.parse("-1") == -1
    with pytest.raises(ConfigError, match=r"some\.key=10: must be from 1 to 9, or -1"):
        bounded.check("10")
    with pytest.raises(ConfigError, match="must be at least 3"):
        key(ConfigKind.INT, allowed=Between(3)).check("2")
    with pytest.raises(ConfigError, match="must be at most 3"):
        key(ConfigKind.INT, allowed=Between(high=3)).check("4")


def test_the_error_of_an_unknown_word_contains_the_choices() -> None:
    exact = key(ConfigKind.STRING, allowed=OneOf(("gzip", "zstd")))
    assert exact.parse("zstd") == "zstd"
    with pytest.raises(ConfigError, match="must be one of gzip, zstd"):
        exact.check("GZIP")
    assert key(ConfigKind.STRING, allowed=OneOf(("UP", "DOWN"), ignore_case=True)).parse("up") == "up"
    with pytest.raises(ConfigError, match="must not be empty"):
        key(ConfigKind.STRING, allowed=NonEmpty()).check("  ")


@pytest.mark.parametrize(
    ("text", "why"),
    [("a,,b", "empty items"), ("a,b,a", "'a' only once"), ("a,c", "among a, b"), ("", "at least one")],
)
def test_a_list_has_no_empty_repeated_or_unknown_items(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        key(ConfigKind.LIST, allowed=Items(("a", "b"), at_least_one=True)).check(text)


def test_a_password_is_never_repeated_in_an_error() -> None:
    secret = key(ConfigKind.PASSWORD, allowed=NonEmpty())
    assert secret.sensitive
    rejected = key(ConfigKind.PASSWORD, allowed=OneOf(("x",)))
    with pytest.raises(ConfigError) as error:
        rejected.check("hunter2")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (("a", "b"), "a,b"),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001234, "1.234E-4"),
        (-5e-9, "-5.0E-9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_value_is_spelt_as_java_spells_it(value: object, text: str) -> None:
    assert text_of(value) == text  # type: ignore[arg-type]


def test_a_value_has_one_canonical_spelling() -> None:
    assert key(ConfigKind.DOUBLE).normalise("0.70") == "0.7"
    assert key(ConfigKind.LIST).normalise("compact , delete") == "compact,delete"
    assert key(ConfigKind.BOOLEAN).normalise("True") == "true"


def test_a_name_declared_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        by_name([key(ConfigKind.INT), key(ConfigKind.LONG)])
