"""Jobs that fire at their times, on one of many processes: `SchedulerPlugin`.

    python examples/scheduled_jobs.py [URL] [--seconds N]

Start it in two terminals. One leads, and runs the jobs. Ctrl-C it: the other goes on at once. Each time of each job is
decided once, and is on record: `tenure schedule list URL`, `history URL` and `run URL report` work from any terminal.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import tenure
from tenure import Run, cron, every

ME = f"worker-{os.getpid()}"
scheduler = tenure.SchedulerPlugin(namespace="scheduled", config=tenure.CoordinatorConfig.fast())


def say(words: str) -> None:
    sys.stdout.write(f"{ME}: {words}\n")  # in one piece: jobs run side by side
    sys.stdout.flush()


@scheduler.job(every(1))
async def tick(run: Run) -> None:
    say(f"epoch {run.epoch}, tick of {run.scheduled:%H:%M:%S}")


@scheduler.job(every(3), retries=2, backoff=0.5)
def flaky(run: Run) -> None:  # a plain function runs in a thread
    say(f"epoch {run.epoch}, flaky, attempt {run.attempt} with token {run.token}")
    if run.attempt == 1:
        raise ValueError("tried again in half a second")


scheduler.declare("report", cron("30 2 * * *", timezone="Europe/Berlin"), command=("sh", "-c", "echo $TENURE_JOB"))


async def main(url: str) -> None:
    async with tenure.Database(url, worker_id=ME) as db:
        await db.use_plugin(scheduler)
        scheduler.on("plg:scheduler:leading", lambda told: say(f"epoch {told.event.epoch} begins"))
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
