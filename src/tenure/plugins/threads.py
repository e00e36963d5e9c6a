"""Plain functions of users, each called in a thread of its own.

One that never returns keeps neither a place in a pool, for which others wait, nor the process, which does not wait for
daemon threads when it ends.

Not guaranteed: that such a call ends. Nothing can end a thread; whoever calls bounds how many are left behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from tenure.plugins.queue.calling import called

Returned: TypeAlias = tuple[Any, BaseException | None]
"""What a call gave, or raised."""


def in_thread(call: Callable[[], Any], *, name: str, on_end: Callable[[], object]) -> asyncio.Future[Returned]:
    """Begin a call, in the context of who asks for it. Raises `RuntimeError` if there can be no further thread.

    The future may be given up. `on_end`: told on the loop once the call has ended, also then.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Returned] = loop.create_future()
    context = contextvars.copy_context()

    def settle(returned: Returned) -> None:
        on_end()
        if not result.done():
            result.set_result(returned)

    def body() -> None:
        returned: Returned
        try:
            returned = context.run(called, lambda _: call(), None), None
        except BaseException as error:
            returned = None, error
        try:
            loop.call_soon_threadsafe(settle, returned)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for it any more

    threading.Thread(target=body, name=name, daemon=True).start()
    return result
