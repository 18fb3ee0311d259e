"""The checks of the Java client 4.3.1 have the same results with our node as with Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from compat.java.make_expected_results import read_expected_results, results_of

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

EXPECTED = read_expected_results()
# Where we differ on purpose: the part of Kafka's result, and our replacement.
DIFFERENCES = {
    # The record with the largest timestamp has been deleted: Kafka returns it until its segment is deleted.
    "delete records": ("max=99 at 99 of epoch 0", "max=-1"),
}


@pytest.fixture(scope="module")
def ours(programs: str, bootstrap: str) -> dict[str, str]:
    return results_of(programs, bootstrap)


@pytest.mark.parametrize("check", EXPECTED)
def test_the_java_client_has_the_same_result_as_with_kafka(check: str, ours: dict[str, str]) -> None:
    theirs, instead = DIFFERENCES.get(check, ("", ""))
    assert theirs in EXPECTED[check]
    assert ours[check] == EXPECTED[check].replace(theirs, instead)


def test_every_check_has_an_expected_result(ours: dict[str, str]) -> None:
    assert list(ours) == list(EXPECTED)
