"""Evaluation toolkit for checkpointing on Slurm clusters: what sacct history says, and how sure it is."""

from __future__ import annotations

__version__ = "0.1.0"
