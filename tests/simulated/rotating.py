"""Seeds that no day before has tried: what is run for each change begins at another seed each day.

The first one is printed, with the command that repeats the run. TENURE_FIRST_SEED=n in the environment sets it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from tenure.simulate.campaign import Report, run_campaign
from tenure.simulate.seed import Plan

_SEEDS_A_DAY = 1000


def first_seed() -> int:
    given = os.environ.get("TENURE_FIRST_SEED")
    return int(given) if given else datetime.now(UTC).date().toordinal() * _SEEDS_A_DAY


def run_seeds_of_today(seeds: int, plan: Plan) -> Report:
    first = first_seed()
    option = "" if plan.what == "election" else f" --{plan.what}"
    print(f"repeat with: tenure simulate{option} --first-seed {first} --seeds {seeds} --minutes {plan.minutes:g}")
    return run_campaign(first, seeds, plan)
