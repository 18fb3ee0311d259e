"""The option `--rewrite` of transcript tests, and `xdist_group` for tests that share an expensive fixture.

pytest-xdist 3.8 writes a test's group into an attribute that pytest 9.2 no longer reads: `xdist_group` would be ignored
and every worker would start its own nodes. Remove the hook when pytest-xdist supports pytest 9.2.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import NodeId


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the actual output into the transcripts")


@pytest.fixture(scope="session")
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether transcripts are rewritten instead of compared."""
    return bool(pytestconfig.getoption("--rewrite"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        for mark in item.iter_markers("xdist_group"):
            group = f"@{mark.args[0]}"
            if not item.nodeid.endswith(group):
                item._id = NodeId.parse(item.nodeid + group)
