"""The switch `--rewrite` of transcript tests; groups of tests that share a costly fixture stay on one xdist worker.

pytest-xdist 3.8 writes a test's group into an attribute that pytest 9.2 no longer reads: `xdist_group` would be ignored
and every worker would start nodes of its own. This hook can go when pytest-xdist knows pytest 9.2.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import NodeId


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write today's output into the transcripts that are run")


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
