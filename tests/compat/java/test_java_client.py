"""The Java client 4.3.1 finds at our node, check by check, what it finds at Apache Kafka 4.3.1 (answers.txt)."""

from __future__ import annotations

import pytest

from compat.java.make_expected_results import answers_of, read_answers

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

KAFKAS = read_answers()
# Where we mean to differ: what Kafka's answer has, what ours has instead, and why.
OTHERWISE = {
    # The record with the largest timestamp has been deleted: Kafka names it as long as its segment is there.
    "delete records": ("max=99 at 99 of epoch 0", "max=-1"),
}


@pytest.fixture(scope="module")
def ours(programs: str, bootstrap: str) -> dict[str, str]:
    return answers_of(programs, bootstrap)


@pytest.mark.parametrize("check", KAFKAS)
def test_the_java_client_finds_what_it_finds_at_kafka(check: str, ours: dict[str, str]) -> None:
    theirs, instead = OTHERWISE.get(check, ("", ""))
    assert theirs in KAFKAS[check]
    assert ours[check] == KAFKAS[check].replace(theirs, instead)


def test_every_check_has_an_answer_of_kafkas(ours: dict[str, str]) -> None:
    assert list(ours) == list(KAFKAS)
