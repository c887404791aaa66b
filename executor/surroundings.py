"""What there is to work with: the folder, the engine, cores and memory."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import DeploymentMethod  # type: ignore[import-untyped]

from .runner import proc
from .runner.durable import private_folder
from .settings import ExecutorSettings
from .steps import name_of, printable


def find_root(settings: ExecutorSettings, persistence: Any) -> Path:
    """The private folder for everything, made if it is not there. Raises WorkflowError."""
    chosen = settings.dir or str(Path(persistence.aux_path) / "cedana")
    root = Path(chosen).expanduser().absolute()
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (root, root / "logs", root / "slots", root / "steps"):
            private_folder(folder)
    except Exception as error:
        raise WorkflowError(f"--cedana-dir {str(root)!r} cannot be used: {error}") from error
    return root


class Engine:
    """The engine of this run, looked for only when a step wants one."""

    def __init__(self, settings: ExecutorSettings, root: Path, logger: Any) -> None:
        self._settings = settings
        self._root = root
        self._logger = logger
        self._found: tuple[str, str] | None = None

    def require(self) -> tuple[str, str]:
        """Name and program. Raises WorkflowError where steps could not be checkpointed."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def require_for(self, job: Any) -> None:
        """Raise WorkflowError where this one step cannot be checkpointed."""
        if not job.is_containerized or self._settings.allow_uncheckpointed:
            return
        workflow = (job if not job.is_group() else next(iter(job.jobs))).rule.workflow
        if DeploymentMethod.APPTAINER.name in {
            method.name for method in workflow.deployment_settings.deployment_method
        }:
            raise WorkflowError(
                f"{name_of(job)}: runs in a container, which cannot be checkpointed. Leave out "
                "cedana=1, or give --cedana-allow-uncheckpointed."
            )

    def _find(self) -> tuple[str, str]:
        if self._settings.engine == "none":
            trouble = "--cedana-engine none takes no checkpoints"
        elif not (trouble := self._criu_trouble()):
            return "criu", self._settings.criu_path()
        if self._settings.engine == "criu" or not self._settings.allow_uncheckpointed:
            raise WorkflowError(
                f"Steps ask for checkpoints (resource cedana=1), but {trouble}. Give a working "
                "--cedana-criu, or --cedana-allow-uncheckpointed to run them without."
            )
        self._logger.warning(
            f"Steps with cedana=1 run without checkpoints ({trouble}): after an interruption "
            "they start anew."
        )
        return "none", ""

    def _criu_trouble(self) -> str:
        from .runner.engines.criu import Criu

        program = self._settings.criu_path()
        if not program:
            return f"there is no program {self._settings.criu!r}"
        work = self._root / "check"
        private_folder(work)
        said = Criu(program, work).check()
        return f"{program} does not work here ({printable(said)})" if said else ""


def bounds(workflow: Any) -> tuple[int, int]:
    """Cores and MB of memory that steps may use at the same time on this machine."""
    from .schedulers.local import machine_mem_mb, usable_cores

    cores = workflow.resource_settings.cores
    if not isinstance(cores, int) or not 0 < cores < sys.maxsize:
        cores = usable_cores()
    given = workflow.global_resources.get("mem_mb")
    mem_mb = getattr(given, "value", given)
    return cores, mem_mb if isinstance(mem_mb, int) and mem_mb > 0 else machine_mem_mb()


def end_process(pid: int, patience: float) -> None:
    """SIGTERM, and SIGKILL after `patience` seconds. Returns when the process is gone."""
    found = proc.process(pid)
    if found is None:
        return
    deadline = time.monotonic() + patience
    proc.send(found, signal.SIGTERM)
    while proc.alive(found.pid, found.start):
        if time.monotonic() > deadline:
            proc.send(found, signal.SIGKILL)
        time.sleep(0.05)
