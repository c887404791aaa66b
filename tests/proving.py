"""How hard the property tests try: quick samples by default, full proofs with PROVE=1."""

from __future__ import annotations

import os
import random

PROVING = os.environ.get("PROVE") == "1"
SEED = int(os.environ.setdefault("HYPOTHESIS_SEED", str(random.SystemRandom().getrandbits(32))))
"""Of a proof; given in HYPOTHESIS_SEED to repeat one. Quick samples are the same each time."""


def examples(count: int) -> int:
    """How many examples to try, where `count` make a quick sample."""
    return 20 * count if PROVING else count
