"""Settings that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from proving import PROVING, SEED, examples

settings.register_profile(
    "project",
    deadline=None,
    derandomize=not PROVING,
    max_examples=examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("project")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Seed a proof before hypothesis' own plugin looks for a seed."""
    if PROVING and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try tests of real processes once more, and list them as such; not so in a proof.

    They watch other processes within limits of time, which a busy machine can exceed.
    """
    for item in items:
        if "executor" in item.path.parts and not PROVING:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_report_header() -> str:
    """Tell the seed, to repeat a proof that failed."""
    return f"property tests: seed {SEED}" if PROVING else "property tests: quick, derandomized"
