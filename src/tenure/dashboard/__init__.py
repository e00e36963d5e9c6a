"""A page that shows a fleet, live: who leads and since when, the workers, and the work that the leader does.

    tenure dashboard s3://bucket/app            # on http://127.0.0.1:8321

or in an application of your own:

    dashboard = tenure.dashboard.create_app("s3://bucket/app", allowed_hosts=["ops.example.org"])
    app = Starlette(routes=[Mount("/tenure", dashboard)], lifespan=tenure.dashboard.lifespan(dashboard))

Guarantee: it only reads, unless it was given a token and somebody who has it acts. What it shows of the fleet is as old
as its last look.

It needs the extra `dashboard`: pip install 'tenure[dashboard]'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.given import shown
from tenure.errors import ConfigError, MissingExtra

try:
    from starlette.applications import Starlette

    from tenure.dashboard.app import Dashboard, build
except ImportError as error:
    raise MissingExtra("the dashboard needs more than was installed: pip install 'tenure[dashboard]'") from error

__all__ = ["create_app", "lifespan"]


def create_app(
    url: str,
    namespace: str = "default",
    *,
    token: str | None = None,
    read_needs_token: bool = False,
    allowed_hosts: Iterable[str] = (),
    interval: float = 1.0,
    clock: Clock = SYSTEM_CLOCK,
) -> Starlette:
    """The dashboard of one namespace, as an application that any ASGI server runs and any other can mount.

    `token`: whoever has it may act; without one nobody may. `read_needs_token`: whoever has it may look, and nobody
    else. `allowed_hosts`: the names under which it is reached, besides those of this machine. `interval`: seconds
    between two looks at the lease. Raises `ConfigError`.
    """
    return build(
        url,
        namespace,
        token=token,
        read_needs_token=read_needs_token,
        allowed_hosts=allowed_hosts,
        interval=interval,
        clock=clock,
    )[0]


def lifespan(dashboard: Starlette) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """For the application that mounts it: servers run the lifespan of the outermost application alone."""
    parts = (
        dashboard.state.dashboard if isinstance(dashboard, Starlette) and hasattr(dashboard.state, "dashboard") else 0
    )
    if not isinstance(parts, Dashboard):
        raise ConfigError(f"dashboard is {shown(dashboard)}: give what tenure.dashboard.create_app() gave")

    def around(app: Any) -> AbstractAsyncContextManager[None]:
        return parts.lifespan(app)

    return around
