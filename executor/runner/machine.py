"""What this machine is, for the ledger and for manifests, and whether an image fits it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
NONE = "none"
_NVIDIA = Path("/proc/driver/nvidia")


@cache
def facts() -> dict[str, str]:
    """What every event of the ledger tells about the machine."""
    graphics = _NVIDIA.is_dir()
    missing = UNKNOWN if graphics or Path("/dev/kfd").exists() else NONE
    return {
        "kernel": os.uname().release,
        "cpu": _cpu("model name", "Processor", "cpu") or UNKNOWN,
        "gpu_model": (_gpu_models() if graphics else "") or missing,
        "driver": (_driver() if graphics else "") or missing,
        "cuda": missing,  # which CUDA a step brings is not seen from outside of it
    }


@cache
def image_facts() -> dict[str, object]:
    """What a manifest says about the machine that an image was made on."""
    flags = _cpu("flags", "Features").split()
    return {
        "architecture": os.uname().machine,
        "cpu_flags": sorted(set(flags)),
        "kernel": os.uname().release,
        "host": os.uname().nodename,
        "uid": os.geteuid(),
    }


def misfit(image: Mapping[str, object], here: Mapping[str, object]) -> str:
    """Why an image made elsewhere cannot go on here; "" where nothing speaks against it.

    Both say uid, architecture, cpu_flags, kernel, engine, engine_version and namespaced. What one
    of them does not say fits nothing.
    """
    for name in ("uid", "architecture", "engine"):
        if name not in image or image[name] != here.get(name):
            return f"{name} is {here.get(name)!r} here, {image.get(name)!r} in the image"
    if image.get("namespaced") and not here.get("namespaced"):
        return "the image needs a process namespace, which this runner cannot make"
    missing = _flags(image) - _flags(here)
    if missing or not isinstance(image.get("cpu_flags"), list):
        return f"this processor lacks {', '.join(sorted(missing)[:8]) or 'a list of its features'}"
    if version(image.get("engine_version"))[:1] != version(here.get("engine_version"))[:1]:
        return f"engine {here.get('engine_version')} here, {image.get('engine_version')} there"
    if version(image.get("kernel"))[:2] > version(here.get("kernel"))[:2]:
        return f"kernel {here.get('kernel')} here is older than {image.get('kernel')}"
    return ""


def version(text: object) -> tuple[int, ...]:
    """The numbers a version begins with: "6.18.44-cloud" is (6, 18, 44)."""
    match = re.match(r"\d+(?:\.\d+)*", str(text))
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _flags(facts: Mapping[str, object]) -> set[str]:
    flags = facts.get("cpu_flags")
    return {str(flag) for flag in flags} if isinstance(flags, list) else set()


@cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    found: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return {}
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def _cpu(*names: str) -> str:
    return next((_cpuinfo()[name] for name in names if name in _cpuinfo()), "")


def _gpu_models() -> str:
    models = set()
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        match = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.M)
        if match:
            models.add(match[1].strip())
    return ", ".join(sorted(models))


def _driver() -> str:
    try:
        text = (_NVIDIA / "version").read_text(errors="replace")
    except OSError:
        return ""
    match = re.search(r"(?:Kernel Module|x86_64|aarch64)\s+(\d+(?:\.\d+)+)", text)
    return match[1] if match else ""


def storage(path: Path) -> str:
    """The type of the file system that holds a path, as the mount table names it."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return UNKNOWN
