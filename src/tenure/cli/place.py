"""Which namespace of which store a command is about."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import click

from tenure.cli.settings import Refusal, where_from
from tenure.coordinator.layout import MAX_NAMESPACE_CHARACTERS, folder_of, namespace_store
from tenure.errors import ConfigError
from tenure.store import Access, Store, open_store
from tenure.store.url import parse_url

F = TypeVar("F", bound=Callable[..., Any])

NO_URL = (
    "which store? Give its URL as the argument URL, in the environment variable TENURE_URL, or as url in tenure.toml: "
    "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory"
)


URL_LEFT_OUT = "tenure.url.left_out"
"""In `click.Context.meta`: the first word on the line is no URL, but what stands after one."""


class UrlArgument(click.Argument):
    """Of a command with further arguments it may be left out as well, where it comes from elsewhere."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if not ctx.meta.get(URL_LEFT_OUT):
            super().add_to_parser(parser, ctx)


def located(command: F) -> F:
    """Gives a command the argument URL, which may also come from the environment or from tenure.toml."""
    return click.argument("url", cls=UrlArgument, envvar="TENURE_URL", required=False, callback=checked_url)(command)


def placed(command: F) -> F:
    """Gives a command the argument URL and the option --namespace."""
    command = click.option(
        "--namespace",
        envvar="TENURE_NAMESPACE",
        default="default",
        show_default=True,
        callback=_checked_namespace,
        help=f"Which election on that store (at most {MAX_NAMESPACE_CHARACTERS} characters; or TENURE_NAMESPACE).",
    )(command)
    return located(command)


def checked_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    if url is None:
        if context.resilient_parsing:
            return None
        raise Refusal(NO_URL, context)
    return _named(context, parameter, url, parse_url)


def _checked_namespace(context: click.Context, parameter: click.Parameter, namespace: str) -> str:
    return _named(context, parameter, namespace, folder_of)


def _named(context: click.Context, parameter: click.Parameter, value: str, check: Callable[[str], object]) -> str:
    """Refused before anything is opened; and whoever typed nothing is told where it came from."""
    try:
        check(value)
    except ConfigError as error:
        origin = where_from(context, parameter)
        raise Refusal(f"{error} ({origin})" if origin else str(error), context) from None
    return value


@contextlib.asynccontextmanager
async def open_namespace(url: str, namespace: str, access: Access) -> AsyncIterator[Store]:
    """The namespace's own part of the store. With `Access.READ_ONLY` nothing is made, tried out or written."""
    folder_of(namespace)  # a name that cannot be one is refused before anything is opened
    async with open_store(url, access=access) as store:
        yield namespace_store(store, namespace)
