from __future__ import annotations

import pytest

from strandline.cli.config import parse_resource
from strandline.cli.errors import UsageError
from strandline.client.admin.configs import Resource, ResourceType

READINGS = {
    ("topic", "t"): (Resource(ResourceType.TOPIC, "t"), []),
    ("topic", "t", "a=1", "b=2"): (Resource(ResourceType.TOPIC, "t"), ["a=1", "b=2"]),
    ("topic/t", "a=1"): (Resource(ResourceType.TOPIC, "t"), ["a=1"]),
    ("orders", "a=1"): (Resource(ResourceType.TOPIC, "orders"), ["a=1"]),
    ("topic", "broker"): (Resource(ResourceType.TOPIC, "broker"), []),
    ("broker", "1", "k"): (Resource(ResourceType.BROKER, "1"), ["k"]),
    ("brokers", "k"): (Resource(ResourceType.BROKER, ""), ["k"]),
    ("cluster",): (Resource(ResourceType.BROKER, ""), []),
    ("group", "g"): (Resource(ResourceType.GROUP, "g"), []),
    ("client-metrics", "m"): (Resource(ResourceType.CLIENT_METRICS, "m"), []),
}


@pytest.mark.parametrize("words", READINGS)
def test_the_first_arguments_name_the_resource(words: tuple[str, ...]) -> None:
    assert parse_resource(list(words)) == READINGS[words]


@pytest.mark.parametrize("words", [["topic"], ["broker"], ["broker", "x"], ["broker/x"]])
def test_an_incomplete_resource_is_invalid_usage(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_resource(words)
