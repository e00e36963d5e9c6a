"""Which namespace of which store a command is about."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import click

from tenure.coordinator.layout import MAX_NAMESPACE_CHARACTERS, folder_of, namespace_store
from tenure.store import Access, Store, open_store

F = TypeVar("F", bound=Callable[..., Any])


def placed(command: F) -> F:
    """Gives a command the argument URL and the option --namespace."""
    command = click.option(
        "--namespace",
        envvar="TENURE_NAMESPACE",
        default="default",
        show_default=True,
        help=f"Which election on that store (at most {MAX_NAMESPACE_CHARACTERS} characters; or TENURE_NAMESPACE).",
    )(command)
    return click.argument("url", envvar="TENURE_URL")(command)


@contextlib.asynccontextmanager
async def open_namespace(url: str, namespace: str, access: Access) -> AsyncIterator[Store]:
    """The namespace's own part of the store. With `Access.READ_ONLY` nothing is made, tried out or written."""
    folder_of(namespace)  # a name that cannot be one is refused before anything is opened
    async with open_store(url, access=access) as store:
        yield namespace_store(store, namespace)
