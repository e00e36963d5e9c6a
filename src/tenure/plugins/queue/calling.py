"""Handlers that block: called in a thread or a process, or right here."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

from tenure.plugins.queue.settings import Blocking


class Caller:
    def __init__(self, blocking: Blocking, new_executor: Callable[[], Executor] | None) -> None:
        self._blocking = blocking
        self._new_executor = new_executor
        self.executor = new_executor() if new_executor is not None else None

    async def call(
        self, handler: Callable[[Any], Any], argument: Any, context: contextvars.Context | None = None
    ) -> Any:
        """`context`: run it in this one, if it is run in a thread."""
        if self._blocking is Blocking.INLINE:
            return handler(argument)
        call: Callable[[], Any] = functools.partial(called, handler, argument)
        if context is not None and self._blocking is Blocking.THREAD:
            call = functools.partial(context.run, call)
        executor = self.executor
        try:
            result = await asyncio.get_running_loop().run_in_executor(executor, call)
        except BrokenExecutor:
            if executor is self.executor and self._new_executor is not None:
                self.executor = self._new_executor()  # one process that dies must not be the end of all handling
                if executor is not None:
                    executor.shutdown(wait=False, cancel_futures=True)
            raise
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Let go of the threads or processes. What runs in a thread cannot be ended; a process that is not done by now
        is ended, since its message is tried again elsewhere."""
        executor, self.executor = self.executor, None
        if executor is None:
            return
        processes = list((getattr(executor, "_processes", None) or {}).values())
        for process in processes:
            process.kill()
        executor.shutdown(wait=bool(processes), cancel_futures=True)  # at once, if they are dead


def called(handler: Callable[[Any], Any], argument: Any) -> Any:
    """In a thread or process: a future cannot carry a StopIteration, and would never end."""
    try:
        return handler(argument)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def is_async(function: Any) -> bool:
    call = function.__call__ if callable(function) and not inspect.isroutine(function) else function
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
