"""How much of a test by real processes is run for each change, and how much before a release (`make trials`).

What no change may break is shown on a directory, which needs no server. Repetitions find what is rare, and a server
answers later: both wait for a release, unless the store is what a test is about.
"""

from __future__ import annotations

import pytest

KINDS = ("directory", "ministack")
STORES = pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.trials)])


def sized(names: str, once: tuple[object, ...], often: tuple[object, ...]) -> pytest.MarkDecorator:
    """The store's `kind` and these names: `once` for each change on a directory; `often` in trials, on both stores."""
    trials = [pytest.param(kind, *often, marks=pytest.mark.trials) for kind in KINDS]
    return pytest.mark.parametrize(f"kind, {names}", [(KINDS[0], *once), *trials])
