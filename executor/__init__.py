"""Snakemake executor plugin: steps go on from their latest checkpoint."""

from snakemake_interface_executor_plugins.settings import CommonSettings  # type: ignore[import-untyped]

from .executor import Executor
from .settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    # Values of variables may be secrets: they travel in the environment, never through a file.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    # Steps wake the executor themselves, so there is nothing to wait for.
    init_seconds_before_status_checks=0,
)
