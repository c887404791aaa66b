"""Snakemake's own tests of executor plugins: steps that are not opted in, and groups of them."""

import snakemake.common.tests  # type: ignore[import-untyped]

from snakemake_executor_plugin_cedana import ExecutorSettings


class TestHarness(snakemake.common.tests.TestWorkflowsLocalStorageBase):  # type: ignore[misc]
    __test__ = True

    def get_executor(self) -> str:
        return "cedana"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()
