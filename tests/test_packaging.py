"""What is installed is what is in the tree, under the right names, and it starts light."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = importlib.metadata.distribution("snakemake-executor-plugin-cedana")
ROOT = Path(__file__).parent.parent
CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()
FOLDERS = {
    "cedana_poc/reports/": ROOT / "reports",
    "cedana_poc/": ROOT / "poc",
    "snakemake_executor_plugin_cedana/": ROOT / "executor",
}
PACKAGES = ("cedana_poc", "snakemake_executor_plugin_cedana")


def in_tree() -> dict[str, bytes]:
    """Every source file by the name it is to be installed under."""
    return {
        name + path.relative_to(folder).as_posix(): path.read_bytes()
        for name, folder in FOLDERS.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def installed() -> dict[str, bytes]:
    """Every file that lies in the installed packages, recorded by the installer or not."""
    site = Path(str(DISTRIBUTION.locate_file("")))
    return {
        path.relative_to(site).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in (site / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_installed_files_are_those_of_the_tree_and_no_others() -> None:
    expected, found = in_tree(), installed()
    assert sorted(expected) == sorted(found)
    changed = [name for name in expected if expected[name] != found[name]]
    assert changed == [], "`make setup` installs them again"


def test_wheel_brings_two_top_level_names_and_one_command() -> None:
    files = DISTRIBUTION.files or []
    outside = [path for path in files if path.parts[0] == ".."]
    inside = {path.parts[0] for path in files if path.parts[0] != ".."}
    assert inside - {*PACKAGES} == {
        f"snakemake_executor_plugin_cedana-{DISTRIBUTION.version}.dist-info"
    }
    assert [path.name for path in outside] == ["cedana-poc"]


def test_installed_from_the_tree_but_not_editable() -> None:
    origin = json.loads(DISTRIBUTION.read_text("direct_url.json") or "{}")
    assert not origin.get("dir_info", {}).get("editable", False)


def test_package_and_distribution_give_one_version() -> None:
    import cedana_poc

    assert DISTRIBUTION.version == cedana_poc.__version__


def requirements(distribution: str, extra: str = "") -> set[str]:
    """What a distribution needs, directly or not, as `name==installed version`."""
    found: set[str] = set()
    wanted = [(distribution, extra)]
    while wanted:
        name, extra = wanted.pop()
        for line in importlib.metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": extra}):
                continue
            pin = f"{canonicalize_name(needed.name)}=={importlib.metadata.version(needed.name)}"
            if pin not in found:
                found.add(pin)
                wanted += [(needed.name, extra) for extra in ("", *needed.extras)]
    return found


def test_constraints_are_names_and_versions_only() -> None:
    pin = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9A-Za-z.+!]*")
    assert [line for line in CONSTRAINTS if not pin.fullmatch(line)] == []


def test_constraints_pin_every_requirement_as_installed() -> None:
    pinned = {
        f"{canonicalize_name(name)}=={version}"
        for name, version in (line.split("==") for line in CONSTRAINTS)
    }
    assert sorted(requirements(DISTRIBUTION.name, "test") - pinned) == []


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = {"duckdb", "polars", "numpy", "matplotlib", "jinja2", "ClusterShell"}
    code = "import sys, cedana_poc.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "cedana_poc.cli" in loaded
    assert heavy.intersection(loaded) == set()
