"""Everything that knows how sacct prints. `read` gives runs as a polars frame."""

from __future__ import annotations

from cedana_poc.sacct.account import Account
from cedana_poc.sacct.frame import Runs, read

__all__ = ["Account", "Runs", "read"]
