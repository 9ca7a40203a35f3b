"""Options and fixtures for all tests, such as the default sentence model, which is decoded once per process."""

from __future__ import annotations

import os
import signal
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded, as the product does
# Tests start hundreds of processes. Without cached bytecode each would compile all modules, which takes four times as long as
# the test itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from support.server import clean_environment
from support.shared import require_shared
from support.shell import Shell
from support.stores import STORES, choose_store, skip_own_stores
from support.timing import TestTimes, add_options, skip_long_tests
from waypost.embedders.choice import choose_embedder
from waypost.search.vectors import VectorSpace

sys.dont_write_bytecode = False

# The same examples in every run: a test fails because of a change, not because of chance or load. `--long` and
# `--hypothesis-profile=exploring` search for new examples.
_NO_DEADLINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, database=None, **_NO_DEADLINE)
settings.register_profile("exploring", max_examples=1000, print_blob=True, **_NO_DEADLINE)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    parser.addoption("--store", choices=STORES, default="own", help="the store of all services that tests start")


def pytest_configure(config: pytest.Config) -> None:
    choose_store(config.getoption("--store"))
    if config.getoption("--times"):
        config.pluginmanager.register(TestTimes())
    if config.getoption("--long"):
        settings.load_profile("exploring")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_long_tests(config, items)
    skip_own_stores(items)


TEST_TIMEOUT_SECONDS = 1200  # ten times the slowest test


def _give_up(*_: int | FrameType | None) -> None:
    pytest.fail(f"the test did not finish within {TEST_TIMEOUT_SECONDS} s", pytrace=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that hangs fails, and does not block the others."""
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(TEST_TIMEOUT_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def is_long(pytestconfig: pytest.Config) -> bool:
    """Whether this run may take long (`--long`): tests that repeat something do so more often, with other chances."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def retrieval_data() -> Path:
    """The labelled data sets of the shared folder."""
    return require_shared("data/retrieval")


@pytest.fixture
def lonely_shell(tmp_path: Path) -> Shell:
    """A shell on a machine without a service."""
    settings = {"WAYPOST_SERVER": "http://127.0.0.1:1", "WAYPOST_DATA": str(tmp_path / "nothing")}
    return Shell(tmp_path, clean_environment(settings))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of decoded models, as in a data folder."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def spaces(models: Path) -> tuple[VectorSpace, ...]:
    """The loaded vector spaces of the default embedder. Vectors are computed when agents are added."""
    chosen = choose_embedder("use", models).spaces
    for space in chosen:
        space.embedder.encode(["load"])
    return tuple(space._replace(is_quick=True) for space in chosen)
