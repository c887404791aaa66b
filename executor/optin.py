"""Which steps are under checkpoints: those whose every rule says cedana=1."""

from __future__ import annotations

from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from .steps import members, name_of


def opted_in(job: Any) -> bool:
    """Does the step want checkpoints? A group does if all its members do.

    Raises WorkflowError for a value that is not supported, naming rule and value.
    """
    return all(_wants(one) for one in members(job))


def partly(job: Any) -> list[str]:
    """Names of the rules of a group that hold the others back; none if there is nothing to say."""
    wants = {one.rule.name: _wants(one) for one in members(job)}
    return sorted(rule for rule, want in wants.items() if not want) if any(wants.values()) else []


def rule_may_opt_in(rule: Any) -> bool:
    """Could jobs of this rule be opted in? Values that are functions are not called."""
    if "cedana" not in rule.resources:
        return False
    return getattr(rule.resources["cedana"], "raw", 1) not in (0, "0", None)


def _wants(job: Any) -> bool:
    value = job.resources.get("cedana", 0)
    if value is None or value in (0, "0", "") or value is False:
        return False
    if value in (1, "1"):
        return True
    raise WorkflowError(
        f"{name_of(job)}: resource cedana={value!r} is not supported: give 1 (checkpoints of the "
        "whole step) or 0 (none)."
        + (" Steps that checkpoint themselves run best without it." if value == "app" else "")
    )
