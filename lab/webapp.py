"""A Starlette application of which one server process leads: `uvicorn lab.webapp:app`. LAB_URL is the store."""

from __future__ import annotations

import asyncio
import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import tenure.asgi
from lab.believer import boottime_ns, say
from tenure import CoordinatorConfig, Lead


async def run_while_leading(lead: Lead) -> None:
    began = boottime_ns()
    say("begin", epoch=lead.epoch)
    try:
        while True:
            await lead.put("report", str(os.getpid()).encode())
            await asyncio.sleep(0.1)
    finally:
        say("end", epoch=lead.epoch, began=began)


async def state(request: Request) -> JSONResponse:
    coordinator = request.app.state.tenure
    return JSONResponse({"leads": coordinator.is_leader(), "epoch": coordinator.get_epoch(), "pid": os.getpid()})


app = Starlette(
    routes=[Route("/", state)],
    lifespan=tenure.asgi.lifespan(
        os.environ.get("LAB_URL", "memory://"),
        lead=run_while_leading,
        config=CoordinatorConfig.fast(startup_jitter_max=0),
    ),
)
