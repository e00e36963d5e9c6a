"""`import tenure`: every name is there, and none is imported before it is asked for."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.coordinator.scope import LeadershipScope
from tenure.database.core import Plugin

SOURCE = Path(tenure.__file__)


def test_every_name_is_what_the_type_checker_sees() -> None:
    (block,) = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    seen = {name.name: each.module for each in block.body if isinstance(each, ast.ImportFrom) for name in each.names}
    assert seen == tenure._HOMES
    assert {*seen, "__version__"} == set(tenure.__all__)
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
    assert set(tenure.__all__) <= set(dir(tenure))


@pytest.mark.parametrize("kind", [tenure.CoordinatorPlugin, tenure.CoordinatorCandidate])
def test_a_plugin_is_one_to_every_type_checker(kind: type[Any]) -> None:
    """Pyright compares the names of parameters, and whether a member is a ClassVar; mypy lets more pass."""
    assert isinstance(Plugin.slug, property)
    assert not [base for base in kind.__mro__ if "ClassVar" in str(inspect.get_annotations(base).get("slug"))]
    for name in ("attach", "start", "stop"):
        wanted, given = inspect.signature(getattr(Plugin, name)), inspect.signature(getattr(kind, name))
        assert list(given.parameters) == list(wanted.parameters), name


@pytest.mark.parametrize("scope", [LeadershipScope, tenure.DistributedLock])
def test_a_scope_does_not_hide_what_its_body_raises(scope: type[Any]) -> None:
    """With `-> bool` a type checker believes that code after it may run without what its body assigns."""
    assert scope.__aexit__.__annotations__["return"] != "bool"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tenure' has no attribute 'leed'"):
        _ = tenure.leed


def test_importing_it_imports_little() -> None:
    code = "import sys, tenure; print(len([name for name in sys.modules if name.startswith('tenure')]), tenure.errors)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) <= 3
