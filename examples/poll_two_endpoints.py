"""Two endpoints are checked, each by one worker of the fleet at a time: `PollOrchestrator` and `PollWorker`.

    python examples/poll_two_endpoints.py [URL] [--seconds N] [--port PORT]

Start it in two terminals. Both run checks; the one that leads decides when, and which of them. So that there is
something to check, each copy also serves the endpoints: /shop is well, /mail is not.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import tenure
from tenure.plugins.poll import HttpCheck, JobCompleted, PollOrchestrator, PollSchedule, PollWorker, read_results

NODE = f"node-{os.getpid()}"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    status = b"200 OK" if (await reader.readline()).startswith(b"GET /shop ") else b"503 Service Unavailable"
    writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


def tell(event: JobCompleted) -> None:
    assert event.job.result is not None
    print(f"{NODE}: {event.job.id} on {event.job.worker_id}: {event.job.result.detail}", flush=True)


async def main(url: str, port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, reuse_port=True)
    schedules = [PollSchedule(at, HttpCheck(f"http://127.0.0.1:{port}/{at}"), every=1) for at in ("shop", "mail")]
    orchestrator = PollOrchestrator(schedules, tick=0.2)
    orchestrator.on("plg:poll:job-completed", tell)
    children = [tenure.Child("poll", orchestrator)]
    async with server, tenure.Database(url, worker_id=NODE) as db:
        candidate = await db.use_plugin(tenure.CoordinatorCandidate(children, namespace="polling"))
        worker = PollWorker(db, candidate.coordinator, schedules, poll_interval=0.2)
        await worker.start()
        try:
            while True:
                await asyncio.sleep(3)
                for name, result in (await read_results(db)).items():
                    print(f"{NODE}: {name} was well in {result.ok} of {result.total} checks", flush=True)
        finally:
            await worker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    parser.add_argument("--port", type=int, default=8641, help="where the endpoints are, on 127.0.0.1")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url, options.port), options.seconds))
