"""Settings that all tests share."""

from __future__ import annotations

import os

PROVING = os.environ.get("PROVE") == "1"
