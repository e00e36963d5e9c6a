"""Pytest plugin: a failure that Hypothesis finds is a failure. Looking for a smaller one may take minutes.

Profiles that a conftest.py registers later take what they do not set from this one.
"""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate))
settings.load_profile("mutants")
