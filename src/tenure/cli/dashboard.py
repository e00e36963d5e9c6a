"""`tenure dashboard`: serve the page that shows a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenure.cli.durations import between
from tenure.cli.numbers import Whole
from tenure.cli.place import placed
from tenure.cli.running import run_until_stopped
from tenure.cli.settings import Refusal
from tenure.cli.text import show_json
from tenure.errors import ConfigError
from tenure.observe.printable import printable, printable_lines
from tenure.store.url import parse_url, redact

if TYPE_CHECKING:
    from tenure.dashboard.app import Dashboard

ENVIRONMENT = "TENURE_DASHBOARD_TOKEN"
_LONGEST_FILE = 4096
_MAX_CONNECTIONS = 512
_SECONDS_TO_END = 3


@click.command(short_help="Serve a page that shows the fleet, live.")
@placed
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; others need a token.")
@click.option("--port", type=Whole(0, 65535), default=8321, show_default=True, help="0 is any that is free.")
@click.option(
    "--token-file",
    metavar="FILE",
    help=f"Holds the token that allows actions; or {ENVIRONMENT}. At least 16 characters.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which browsers reach it, such as that of a proxy; may be repeated.",
)
@click.option(
    "--interval",
    type=between(0.1, 3600),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Between two looks at the lease, while somebody watches.",
)
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON object.")
def dashboard(
    url: str,
    namespace: str,
    host: str,
    port: int,
    token_file: str | None,
    hosts: tuple[str, ...],
    interval: float,
    as_json: bool,
) -> int:
    """Show the fleet at URL in a browser: who leads, the workers, and the work that the leader does.

    Only reads. With a token, from a file or from TENURE_DASHBOARD_TOKEN, whoever has it may also act: step down,
    transfer, pause, redrive. At another address than this machine's own a token is needed to look as well.

    \b
      tenure dashboard s3://bucket/app
      TENURE_DASHBOARD_TOKEN=$(openssl rand -hex 32) tenure dashboard s3://bucket/app

    Needs `pip install 'tenure[dashboard]'`. Ctrl-C ends it, with exit code 0; 2: it could not be started.
    """
    from tenure.dashboard.access import check_host, is_loopback
    from tenure.dashboard.app import build

    token = _token(token_file)
    everywhere = not is_loopback(host)
    for name in hosts:
        try:
            check_host(name)
        except ConfigError as error:
            raise Refusal(f"--allow-host: {error}") from None
    if everywhere and token is None:
        raise Refusal(
            f"--host is {host[:100]!r}, which others can reach: give a token in --token-file or {ENVIRONMENT}, or "
            "listen at 127.0.0.1"
        )
    app, parts = build(
        url,
        namespace,
        token=token,
        read_needs_token=everywhere,
        bound_host=host,
        allowed_hosts=hosts,
        interval=interval,
    )
    with listening(host, port) as listener:
        where = address_of(host, listener)
        place = parse_url(url).shown

        def announce() -> None:
            if as_json:
                show_json({"url": where, "place": place, "namespace": namespace, "actions": token is not None})
            else:
                click.echo(printable(_told(where, place, namespace, token is not None, everywhere)))

        try:
            with logging_to_stderr():
                run_until_stopped(serve(app, parts, listener, announce))
        except click.Abort:
            pass  # how it ends
    return 0


def _told(where: str, place: str, namespace: str, acts: bool, everywhere: bool) -> str:
    may = "whoever has the token may act" if acts else "it only shows: nobody may act without a token"
    if everywhere:
        may = "nobody may look or act without the token; others can listen on the way, so put TLS in front"
    return f"{namespace!r} at {place} is shown on {where} ({may}; Ctrl-C ends it)"


def _token(path: str | None) -> str | None:
    """Never from the command line, where everybody on the machine can read it."""
    from tenure.dashboard.access import check_token

    given = os.environ.get(ENVIRONMENT)
    if path is None:
        return check_token(given.strip()) if given else None
    try:
        text = _text_of(path)
    except (OSError, ValueError) as error:
        raise Refusal(
            f"--token-file is {path[:100]!r}, which cannot be read ({getattr(error, 'strerror', None) or error}): give "
            "a file that holds the token"
        ) from None
    try:
        return check_token(text.decode().strip())
    except UnicodeDecodeError:
        raise Refusal(f"--token-file is {path[:100]!r}, which holds no text") from None
    except ConfigError as error:
        raise Refusal(f"--token-file is {path[:100]!r}: {error}") from None


def _text_of(path: str) -> bytes:
    with Path(path).open("rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode) and not stat.S_ISFIFO(os.fstat(opened.fileno()).st_mode):
            raise Refusal(f"--token-file is {path[:100]!r}, which is no file")
        return opened.read(_LONGEST_FILE + 1)


class _ForTerminals(logging.Formatter):
    """Names and reasons are text of the bucket, and a store may answer with secrets."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(redact(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return printable_lines(redact(super().formatException(ei)))


@contextlib.contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Who asked for what, and defects: nobody else keeps them. Other commands say what matters by themselves."""
    log = logging.getLogger("tenure.dashboard")
    handler = logging.StreamHandler()
    handler.setFormatter(_ForTerminals("%(asctime)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Before anything else: a port that is taken is told at once."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise Refusal(f"--host is {host[:100]!r}, which is no address of this machine ({error})") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise Refusal(
                f"cannot listen at {host[:100]} port {port}: {error.strerror or error}; give another --port, 0 for any"
            ) from None
        listener.listen(128)
        yield listener


def address_of(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


async def serve(app: Any, parts: Dashboard, listener: socket.socket, began: Callable[[], None] = lambda: None) -> None:
    """`began` is called once the store is open: nobody is told of a page that cannot be shown."""
    import uvicorn

    class Server(uvicorn.Server):
        """Signals are `run_until_stopped`'s."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        forwarded_allow_ips="127.0.0.1,::1",  # else an environment variable of uvicorn's decides whom to believe
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    # Here and not by the server, which would only log why the store cannot be opened.
    async with parts.lifespan(app):
        began()
        server = Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        finally:
            parts.closing.set()  # streams would go on for as long as somebody watches
            server.should_exit = True
            await serving
