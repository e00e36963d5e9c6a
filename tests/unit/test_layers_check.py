"""The check of import directions finds an upward arrow however it is written, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import layers

REPOSITORY = Path(layers.__file__).resolve().parent.parent
SOURCES = REPOSITORY / "src" / "tenure"

GOOD = {
    "__init__.py": "from tenure.plugins.queue import Queue\nfrom .cli import main\n",
    "__main__.py": "from tenure.cli import main\n",
    "_version.py": "__version__ = '1'\n",
    "py.typed": "",
    "errors.py": "import asyncio\nfrom tenure._version import __version__\n",
    "clock.py": "from tenure.errors import TenureError\n",
    "store/__init__.py": "from .protocol import Store\nfrom ..clock import Clock\n",
    "store/protocol.py": "from tenure import errors, _version\nimport tenure.clock\nfrom . import memory\n",
    "store/memory.py": "from .. import errors\n",
    "election/rank.py": "from tenure.errors import TenureError\n",
    "coordinator/service.py": "from tenure.election.rank import rank\nfrom tenure.store import Store\n",
    "plugins/queue.py": "from tenure.coordinator.service import Service\nimport tenure_other.cli\n",
    "testing/cluster.py": "from tenure.plugins.queue import Queue\n",
    "cli/__init__.py": "from tenure import Database\nfrom tenure.demo import demo\nfrom ..doctor import check\n",
    "demo.py": "import tenure\nfrom tenure.testing.cluster import Cluster\n",
    "doctor.py": "from tenure.store import Store\n",
}


def tree(folder: Path, changes: Mapping[str, str] | None = None) -> Path:
    """A good package, with some files added or replaced."""
    root = folder / "src" / "tenure"
    for name, text in {**GOOD, **(changes or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def found(root: Path) -> list[str]:
    return [line.removeprefix(f"{root}/") for line in layers.violations(root)]


def test_a_good_tree_passes(tmp_path: Path) -> None:
    assert found(tree(tmp_path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "\nfrom tenure.coordinator.service import Service\n",
        "\nfrom tenure.coordinator import service\n",
        "\nfrom tenure import coordinator\n",
        "\nfrom tenure import errors, coordinator\n",
        "\nimport tenure.coordinator.service as service\n",
        "\nfrom ..coordinator.service import Service\n",
        "\nfrom ..coordinator import service\n",
        "\nfrom .. import coordinator\n",
        "if TYPE_CHECKING:\n    from tenure.coordinator import service\n",
        "def later():\n    from tenure.coordinator import service\n",
        "class A:\n    import tenure.coordinator\n",
        "try:\n    import tenure.coordinator\nexcept ImportError:\n    pass\n",
    ],
)
def test_an_upward_import_fails_in_any_form(tmp_path: Path, text: str) -> None:
    [line] = found(tree(tmp_path, {"store/s3.py": text}))
    assert line.startswith("store/s3.py:2: layer store may not import layer coordinator")


def test_a_relative_import_is_resolved_from_where_it_stands(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"store/deep/__init__.py": "from ...cli import main\n", "store/deep/x.py": "from ..cli import main\n"}
    )
    # In store/deep/x.py `..cli` is store.cli, which is nobody else's business.
    assert found(root) == ["store/deep/__init__.py:1: layer store may not import layer cli (tenure.cli.main)"]


@pytest.mark.parametrize("importer", ["errors.py", "election/x.py", "plugins/x.py"])
def test_nothing_below_testing_imports_it(tmp_path: Path, importer: str) -> None:
    [line] = found(tree(tmp_path, {importer: "from tenure.testing import cluster\n"}))
    assert "may not import layer testing" in line


@pytest.mark.parametrize("text", ["import tenure\n", "from tenure import Database\n", "from .. import Database\n"])
def test_a_lower_layer_does_not_import_the_package_root(tmp_path: Path, text: str) -> None:
    [line] = found(tree(tmp_path, {"ledger/log.py": text}))
    assert line.startswith("ledger/log.py:1: layer ledger may not import the package root (tenure")


def test_a_lower_layer_does_not_import_the_entry_point(tmp_path: Path) -> None:
    [line] = found(tree(tmp_path, {"testing/x.py": "from tenure.__main__ import main\n"}))
    assert "may not import the package root" in line


def test_siblings_at_the_top_do_not_import_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path, {"dashboard.py": "from tenure import telemetry\nfrom tenure.cli import main\n"})
    assert found(root) == [
        "dashboard.py:1: layer dashboard may not import layer telemetry (tenure.telemetry)",
        "dashboard.py:2: layer dashboard may not import layer cli (tenure.cli.main)",
    ]
    monkeypatch.setattr(layers, "ALLOWED", frozenset({("dashboard", "telemetry")}))
    assert len(found(root)) == 1


def test_the_version_imports_no_layer(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "_version.py").write_text("from tenure.errors import TenureError\n")
    assert len(found(root)) == 1


@pytest.mark.parametrize("name", ["utils.py", "helpers/text.py"])
def test_an_unknown_module_or_folder_fails(tmp_path: Path, name: str) -> None:
    [line] = found(tree(tmp_path, {name: ""}))
    assert "is not assigned to a layer" in line


def test_an_import_of_an_unknown_layer_fails(tmp_path: Path) -> None:
    [line] = found(tree(tmp_path, {"plugins/x.py": "from tenure.utils import text\n"}))
    assert line == "plugins/x.py:1: layer plugins imports tenure.utils.text, which is not assigned to a layer"


def test_what_a_moved_folder_left_behind_is_ignored(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "moved" / "__pycache__").mkdir(parents=True)
    (root / "moved" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"")
    assert found(root) == []


def test_a_module_that_does_not_parse_is_reported(tmp_path: Path) -> None:
    [line] = found(tree(tmp_path, {"election/x.py": "\ndef\n"}))
    assert line.startswith("election/x.py:2: ")


def test_the_command_prints_violations_and_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "tools" / "layers.py"), "src/tenure"]
    tree(tmp_path)
    good = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout) == (0, "")
    tree(tmp_path, {"clock.py": "from tenure.store import Store\n"})
    bad = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert bad.stdout == "src/tenure/clock.py:1: layer clock may not import layer store (tenure.store.Store)\n"


@pytest.mark.skipif(not SOURCES.is_dir(), reason="no sources here")
def test_the_package_itself_keeps_to_its_layers() -> None:
    assert list(layers.violations(SOURCES)) == []
