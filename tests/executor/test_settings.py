"""Settings: refused before anything starts, in words; importing the plugin costs little."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.registry import (  # type: ignore[import-untyped]
    ExecutorPluginRegistry,
)

from snakemake_executor_plugin_cedana import ExecutorSettings, common_settings
from snakemake_executor_plugin_cedana.settings import option

OPTIONS = """
--cedana-scheduler --cedana-engine --cedana-dir --cedana-interval --cedana-mtbf --cedana-lead-time
--cedana-max-restores --cedana-keep-generations --cedana-criu --cedana-allow-uncheckpointed
--cedana-dump-slots --cedana-max-bytes --cedana-local-allocation
""".split()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("scheduler", "slurm", "one of auto, local"),
        ("engine", "cedana", "one of auto, criu, none"),
        ("interval", "often", "a number of seconds, at least 0, or 'auto'"),
        ("interval", "-1", "a number of seconds, at least 0, or 'auto'"),
        ("interval", "nan", "a number of seconds, at least 0, or 'auto'"),
        ("interval", "inf", "a number of seconds, at least 0, or 'auto'"),
        ("interval", True, "a number of seconds, at least 0, or 'auto'"),
        ("lead_time", "0", "a number of seconds, at least 1, or 'auto'"),
        ("mtbf", 0, "a whole number, at least 1"),
        ("mtbf", True, "a whole number, at least 1"),
        ("max_restores", -1, "a whole number, at least 0"),
        ("keep_generations", 0, "a whole number, at least 1"),
        ("dump_slots", -1, "a whole number, at least 0"),
        ("max_bytes", 1.5, "a whole number, at least 0"),
        ("local_allocation", -5, "a whole number, at least 0"),
        ("allow_uncheckpointed", "maybe", "true or false"),
        ("criu", "", "the path or the name of a program"),
        ("dir", " ", "the path of a folder"),
        ("dir", "/etc/passwd", "the path of a folder (/etc/passwd is not one)"),
        ("dir", "/etc/passwd/below", "the path of a folder (/etc/passwd is not one)"),
    ],
)
def test_wrong_value_is_refused_with_option_value_and_what_is_allowed(
    name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(WorkflowError) as caught:
        ExecutorSettings(**{name: value})

    assert f"{option(name)} {value!r} is not allowed: give {allowed}." == str(caught.value)


@given(st.one_of(st.floats(0, 1e9), st.integers(0, 10**9)))
def test_any_number_of_seconds_is_an_interval_as_text_and_as_number(seconds: float) -> None:
    assert float(seconds) == ExecutorSettings(interval=str(seconds)).seconds("interval")
    assert float(seconds) == ExecutorSettings(interval=seconds).seconds("interval")  # type: ignore[arg-type]


@given(st.text(max_size=20))
def test_any_text_is_either_an_interval_or_refused(text: str) -> None:
    try:
        seconds = ExecutorSettings(interval=text).seconds("interval")
    except WorkflowError as error:
        assert "--cedana-interval" in str(error)
    else:
        assert seconds == "auto" or 0 <= float(seconds) < float("inf")


def test_every_option_of_the_plugin_is_known_and_no_other() -> None:
    assert sorted(OPTIONS) == sorted(option(known.name) for known in fields(ExecutorSettings))


def test_every_option_has_help_with_its_unit_or_what_it_counts() -> None:
    for known in fields(ExecutorSettings):
        help_ = known.metadata["help"]
        assert len(help_) > 40
        if known.metadata.get("metavar") == "SECONDS":
            assert re.search(r"\bseconds\b", help_, re.I), known.name
        if known.metadata.get("metavar") == "BYTES":
            assert "bytes" in help_


def test_defaults_and_metadata_can_be_written_as_json() -> None:
    """The plugin catalog does so."""
    info = ExecutorPluginRegistry().get_plugin("cedana").get_settings_info()

    assert len(OPTIONS) == len(json.loads(json.dumps(info)))


def test_defaults_are_allowed() -> None:
    assert "auto" == ExecutorSettings().engine


def test_secrets_of_the_workflow_are_not_written_into_commands() -> None:
    assert not common_settings.pass_envvar_declarations_to_cmd


def test_criu_is_found_in_path_and_absent_is_the_empty_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "criu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert str(program) == ExecutorSettings().criu_path()
    assert "" == ExecutorSettings(criu="no-such-criu").criu_path()


def _modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(said.split())


def test_importing_the_plugin_brings_only_the_standard_library_and_itself() -> None:
    """Every inner Snakemake imports it, and a checkpoint holds what it imported."""
    bare = _modules_after(
        "import snakemake_interface_executor_plugins.executors.remote\n"
        "import snakemake_interface_executor_plugins.settings"
    )
    more = _modules_after("import snakemake_executor_plugin_cedana") - bare
    own = {name for name in more if name.startswith("snakemake_executor_plugin_cedana")}
    others = {name.partition(".")[0].lstrip("_") for name in more - own}
    foreign = others - {name.lstrip("_") for name in sys.stdlib_module_names}

    assert "snakemake_executor_plugin_cedana.executor" in own
    assert set() == foreign
    assert "snakemake_executor_plugin_cedana.schedulers.local" not in own
    assert len(own) <= 5
    assert len(more) <= 20
