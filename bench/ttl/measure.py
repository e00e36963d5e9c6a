"""All of it, on one disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.ttl.cleanup import clean_up
from bench.ttl.disk import on_disk
from bench.ttl.figures import changes, missed
from bench.ttl.idle import idle_hour
from bench.ttl.inserts import measure_inserts
from bench.ttl.load import Lot, load
from bench.ttl.plan import Plan
from bench.ttl.scene import Scene
from tenure.plugins.ttl import Expired, OnExpire

_FIELD = {"field": "expires_at"}


class Bench:
    def __init__(
        self,
        home: Path,
        plan: Plan,
        tell: Callable[[str], None] = lambda text: None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`tell`: of what has ended; `progress`: every second. What was loaded stays in `home`."""
        self.home, self.plan = home, plan
        self._tell, self._progress = tell, progress

    def run(self) -> dict[str, Any]:
        """What is small comes first, so that a mistake shows before a million records are loaded."""
        inserts = measure_inserts(self.home, self.plan.inserts, self.plan.batch)
        idle = idle_hour(self.plan.seed)
        self._tell("inserts and an idle hour: measured")
        strategies = self._strategies()
        growth = [self._growth(stored) for stored in self.plan.stored]
        return {
            "growth": growth,
            "changes": changes(growth),
            "missed": missed(growth),
            "strategies": strategies,
            "inserts": inserts,
            "idle_hour": idle,
        }

    def _growth(self, stored: int) -> dict[str, Any]:
        """So many are stored, and what is due of them is cleaned up; then as many that are due are loaded again."""
        plan, scene = self.plan, Scene(self.home / f"stored-{stored}", dict(_FIELD))
        found: dict[str, Any] = {"stored": stored, "due": plan.due, "cleanups": [], "loads_again": []}
        for run in range(plan.runs):
            ahead = stored - plan.due if run == 0 else 0
            loaded = self._load(scene, Lot(f"run{run}", ahead, plan.due, plan.batch)).as_json()
            if run == 0:
                found["load"], found["on_disk"] = loaded, on_disk(scene.folder)
                self._tell(f"{stored:,} records loaded in {loaded['seconds']:,.0f} s, {loaded['per_second']:,.0f}/s")
            else:
                found["loads_again"].append(loaded)
            cleaned = clean_up(scene, plan.due).as_json()
            found["cleanups"].append(cleaned)
            self._tell(
                f"{stored:,} stored: {cleaned['expired']:,} expired in {cleaned['seconds']:.1f} s, "
                f"{cleaned['billed_per_record']:.4f} requests each"
            )
        return found

    def _load(self, scene: Scene, lot: Lot) -> Any:
        total = lot.ahead + lot.due

        def progressed(count: int, seconds: float) -> None:
            rate = count / seconds if seconds else 0.0
            left = f", {(total - count) / rate:,.0f} s left" if rate else ""
            self._progress(f"loading: {count:,} of {total:,} ({count / total:.0%}), {rate:,.0f}/s{left}")

        return load(scene, lot, processes=self.plan.processes, callers=self.plan.callers, progressed=progressed)

    def _strategies(self) -> list[dict[str, Any]]:
        async def called(expired: Expired) -> None:
            pass

        plan, found = self.plan, []
        ways: list[tuple[str, dict[str, Any], bool]] = [
            ("hard delete, entries of many", {}, False),
            ("hard delete, an entry each", {}, True),
            ("soft delete", {"on_expire": OnExpire.SOFT_DELETE}, False),
            ("archive", {"on_expire": OnExpire.ARCHIVE, "archive": "former"}, False),
            ("callback", {"on_expire": OnExpire.CALLBACK, "callback": called}, False),
        ]
        for number, (how, settings, apart) in enumerate(ways):
            scene = Scene(self.home / f"way-{number}", {**_FIELD, **settings})
            lot = Lot("way", 0, plan.strategies, plan.batch, apart)
            loaded = load(scene, lot, processes=1, callers=plan.callers)
            cleaned = clean_up(scene, plan.strategies).as_json()
            found.append({"how": how, **cleaned, "load": loaded.as_json()})
            self._tell(f"{how}: {cleaned['billed_per_record']:.3f} requests per record")
        return found
