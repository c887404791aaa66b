"""What the listed nodes could have given, and the share of it that wall-ended runs held."""

from __future__ import annotations

from typing import Any

from cedana_poc.exposure import UNKNOWN, Exposure, ratio
from cedana_poc.nodes import Nodes

_HELD = """
SELECT sum(round(node_equivalent_seconds
  * greatest(0, "end" - greatest(began, {first})) / greatest(1, "end" - began))::BIGINT)
FROM (SELECT *, coalesce(start, "end" - elapsed) AS began FROM ended WHERE wall_ended)
"""


def of_nodes(nodes: Nodes | None, first: int | None, last: int | None) -> dict[str, Any] | str:
    """What the nodes could have given between the first and the last end."""
    if nodes is None or first is None or last is None or last == first:
        return UNKNOWN
    totals, hours = nodes.totals, (last - first) / 3600
    count = len(nodes.sizes)
    return {
        "nodes": count,
        "cpus": totals.cpus,
        "gpus": totals.gpus,
        "node_hours": round(count * hours, 4),
        "cpu_hours": round(totals.cpus * hours, 4),
        "gpu_hours": round(totals.gpus * hours, 4),
    }


def share(exposure: Exposure, given: dict[str, Any] | str, first: int | None) -> float | str:
    """Node-equivalent hours of wall-ended runs from the first end on, over the nodes' hours.

    Of a run that began before the first end, only the part after it counts, as much of its
    node-equivalent hours as of its time. Nodes touched are no measure, since runs share nodes. More
    than 1 means that the list is not the cluster's, or that nodes were shared beyond their size.
    """
    if isinstance(given, str) or "node_equivalent_hours" not in exposure.counted:
        return UNKNOWN
    row = exposure.connection.execute(_HELD.format(first=first)).fetchone()
    held = row[0] or 0 if row else 0
    return ratio(held / 3600, given["node_hours"])


def too_large(share: float | str) -> bool:
    """Whether a share is known and more than the whole."""
    return not isinstance(share, str) and share > 1
