"""Evaluation of checkpointing on Slurm clusters: what sacct history says, and how surely."""

from __future__ import annotations

__version__ = "0.1.0"
