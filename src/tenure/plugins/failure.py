"""What an exception of users' code says, as text that a record can hold."""

from __future__ import annotations


def text_of(error: BaseException, limit: int, *, name: bool = True) -> str:
    """Its text, after the name of its type. An exception is other people's code as well: it may raise when it is asked
    for its text, and that may hold halves of surrogate pairs (a file name that is not UTF-8), which JSON cannot."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be had)"
    if name:
        text = f"{type(error).__name__}: {text}"
    return text[:limit].encode(errors="replace").decode()
