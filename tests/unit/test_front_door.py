"""`import tenure`: every name is there, and none is imported before it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tenure

SOURCE = Path(tenure.__file__)


def test_every_name_is_what_the_type_checker_sees() -> None:
    (block,) = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    seen = {name.name: each.module for each in block.body if isinstance(each, ast.ImportFrom) for name in each.names}
    assert seen == tenure._HOMES
    assert {*seen, "__version__"} == set(tenure.__all__)
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
    assert set(tenure.__all__) <= set(dir(tenure))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tenure' has no attribute 'leed'"):
        _ = tenure.leed


def test_importing_it_imports_little() -> None:
    code = "import sys, tenure; print(len([name for name in sys.modules if name.startswith('tenure')]), tenure.errors)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) <= 3
