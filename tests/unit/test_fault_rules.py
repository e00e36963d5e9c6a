"""Which of several faults a request is given, and that one can be undone without the others."""

from __future__ import annotations

from lab.fault_proxy import FaultProxy
from lab.faults import Fault, slow, status_before_apply
from lab.http1 import Request

GET = Request("GET", "/bucket/key")
OLD, NEW = slow(0.1), status_before_apply(503)


def given(proxy: FaultProxy, times: int = 1) -> list[Fault | None]:
    return [proxy._choose(GET) for _ in range(times)]


def test_the_oldest_goes_first_unless_one_is_put_ahead() -> None:
    proxy = FaultProxy("http://127.0.0.1:1")
    proxy.plan(OLD, times=None)
    proxy.plan(NEW, times=None)
    assert given(proxy) == [OLD]
    proxy.plan(NEW, times=1, ahead=True)
    assert given(proxy, 2) == [NEW, OLD]


def test_one_of_several_is_undone() -> None:
    proxy = FaultProxy("http://127.0.0.1:1")
    old = proxy.plan(OLD, times=None)
    new = proxy.plan(NEW, times=None, ahead=True)
    assert given(proxy) == [NEW]
    proxy.remove(new)
    assert given(proxy) == [OLD]
    proxy.remove(old)
    assert given(proxy) == [None]
    proxy.remove(old)
    assert (old.hits, new.hits) == (1, 1)


def test_every_few_are_spared() -> None:
    """A storm: what is put ahead last is asked first."""
    proxy = FaultProxy("http://127.0.0.1:1")
    proxy.plan(NEW, times=None, ahead=True)
    proxy.every(5, OLD, ahead=True)
    assert given(proxy, 10) == [NEW, NEW, NEW, NEW, OLD] * 2
