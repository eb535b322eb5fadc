"""Fixtures, and the list of scenarios that passed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .harness.scene import Scene, Variant
from .harness.server import Server

#: What each scenario's tests ended as. One counts as passed if all of its variants did.
_scenarios: dict[str, list[bool]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="where to write the names of the scenarios that passed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path, _, name = report.nodeid.partition("::")
    if "scenarios/" in path and (report.when == "call" or report.failed or report.skipped):
        scenario = name.partition("[")[0].removeprefix("test_")
        _scenarios.setdefault(scenario, []).append(report.passed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    results: Path | None = session.config.getoption("--results")
    if results is not None and not hasattr(session.config, "workerinput"):
        passed = sorted(name for name, ends in _scenarios.items() if all(ends))
        results.write_text("".join(f"{name}\n" for name in passed))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        # Shown by pytest where the test failed.
        print(server.log_text())


@pytest.fixture(params=["asyncio", "plain"])
def variant(request: pytest.FixtureRequest) -> Variant:
    value: Variant = request.param
    return value


@pytest.fixture
async def scene(variant: Variant, server: Server) -> AsyncIterator[Scene]:
    scene = Scene(variant, server)
    yield scene
    await scene.close()
