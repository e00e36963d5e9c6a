"""A requirement counts as shown only by a test that passed, exists, and names an id that exists."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure.testing.broken import all_variants
from tools import requirements

pytest_plugins = ["pytester"]

REPOSITORY = Path(requirements.__file__).resolve().parent.parent

DOCUMENT = """\
# Requirements

- AB-9 not in a section, so not a requirement

## AB: first things

- AB-1 One thing that
  goes on in a second line.
- AB-2 Another.

A remark.

## CD: other things

- CD-1 A last one.
"""


class TestDocument:
    def test_ids_and_texts_are_read_in_order(self) -> None:
        assert requirements.parse_document(DOCUMENT) == (
            requirements.Requirement("AB-1", "AB: first things", "One thing that goes on in a second line."),
            requirements.Requirement("AB-2", "AB: first things", "Another."),
            requirements.Requirement("CD-1", "CD: other things", "A last one."),
        )

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("- AB1 text", "line 2: expected"),
            ("- AB-1", "line 2: expected"),
            ("- CD-1 text", "CD-1 stands under AB"),
            ("- AB-1 text\n- AB-1 text", "line 3: AB-1 is there twice"),
            ("", "no requirement found"),
        ],
    )
    def test_a_malformed_document_is_refused(self, line: str, complaint: str) -> None:
        with pytest.raises(requirements.MalformedDocument, match=complaint):
            requirements.parse_document(f"## AB: things\n{line}\n")

    def test_the_document_of_this_project_is_well_formed(self) -> None:
        document = (REPOSITORY / "docs" / "requirements.md").read_text(encoding="utf-8")
        prefixes = {requirement.id[:2] for requirement in requirements.parse_document(document)}
        assert prefixes == {"EF", "CD", "MT", "EL", "CP", "CB", "SV", "DB", "SQ", "SC", "TT", "EC", "OP", "TS"}


class TestReport:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "requirements.md").write_text(DOCUMENT)
        return tmp_path

    @staticmethod
    def record(root: Path, tier: str, passed: dict[str, list[str]], failed: dict[str, list[str]] | None = None) -> None:
        (root / ".reports").mkdir(exist_ok=True)
        content = {"passed": passed, "failed": failed or {}, "collected_at": "2026-01-01T00:00:00+00:00"}
        (root / ".reports" / f"requirements-{tier}.json").write_text(json.dumps(content))

    @staticmethod
    def mutants(root: Path, **breaks: list[str]) -> None:
        """`variant_x` is a variant, and anything else a mutant."""
        (root / "tests" / "mutants").mkdir(parents=True, exist_ok=True)
        rest = 'file = "f.py"\nbefore = "a"\nafter = "b"\ntest = "t.py::t"'
        entries = (
            f'[[mutant]]\nname = "{name}"\nbreaks = {json.dumps(ids)}\n'
            + (f'variant = "{name.removeprefix("variant_")}"' if name.startswith("variant_") else rest)
            for name, ids in breaks.items()
        )
        (root / "tests" / "mutants" / "named.toml").write_text("\n".join(entries))

    def test_without_results_it_says_what_to_run(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert requirements.main([], root) == 2
        assert "make test" in capsys.readouterr().err

    def test_tests_are_listed_by_id_over_all_tiers(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.record(root, "unit", {"AB-1": ["u.py::t"], "CD-1": ["u.py::c[1]", "u.py::c[2]"]}, {"AB-2": ["u.py::f"]})
        self.record(root, "simulated", {"AB-1": ["s.py::t"]})
        self.mutants(root, first=["AB-1", "I-1"], variant_second=["AB-1"])
        assert requirements.main([], root) == 0
        assert capsys.readouterr().out.splitlines() == [
            "AB: first things",
            "----------------",
            "AB-1   One thing that goes on in a second line.",
            "         passed  s.py::t",
            "         passed  u.py::t",
            "         fails with  mutant first",
            "         fails with  variant second",
            "AB-2   Another.",
            "         FAILED  u.py::f",
            "         no passing test",
            "",
            "CD: other things",
            "----------------",
            "CD-1   A last one.",
            "         passed  u.py::c (2 cases)",
            "         no mutant or variant makes it fail",
            "",
            "2 of 3 ids shown by a passing test",
            "not shown: AB-2",
            "without a mutant or a variant that makes a test fail: CD-1",
        ]

    def test_strict_wants_a_passing_test_for_every_id(self, root: Path) -> None:
        self.mutants(root, all=["AB-1", "AB-2", "CD-1"])
        self.record(root, "unit", {"AB-1": ["a"], "CD-1": ["c"]}, {"AB-2": ["b"]})
        assert requirements.main(["--strict"], root) == 1
        self.record(root, "unit", {"AB-1": ["a"], "CD-1": ["c"], "AB-2": ["b"]})
        assert requirements.main(["--strict"], root) == 0

    @pytest.mark.req("TS-3")
    def test_strict_wants_a_mutant_or_a_variant_for_every_id_that_is_shown(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Nobody has seen a test of it fail: its mark is a claim."""
        self.record(root, "unit", {"AB-1": ["a"], "AB-2": ["b"], "CD-1": ["c"]})
        assert requirements.main([], root) == 0
        assert requirements.main(["--strict"], root) == 1
        assert "without a mutant or a variant that makes a test fail: AB-1, AB-2, CD-1" in capsys.readouterr().out
        self.mutants(root, some=["AB-1", "CD-1"])
        assert requirements.main(["--strict"], root) == 1
        self.mutants(root, some=["AB-1", "CD-1"], variant_other=["AB-2"])
        assert requirements.main(["--strict"], root) == 0

    def test_what_tests_promise_of_themselves_needs_no_mutant(self, root: Path) -> None:
        """Mutants change src/."""
        document = root / "docs" / "requirements.md"
        document.write_text("## TS: tests\n\n- TS-1 Tests are honest.\n")
        self.record(root, "unit", {"TS-1": ["a"]})
        assert requirements.main(["--strict"], root) == 0

    def test_a_mutant_may_not_name_an_id_that_is_unknown(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.record(root, "unit", {})
        self.mutants(root, some=["AB-9"])
        assert requirements.main([], root) == 1
        assert "AB-9 is not in docs/requirements.md, but is named by mutant some" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("[[mutant", "Expected"),
            ('[[mutant]]\nbreaks = ["AB-1"]', "entry 1 has no name"),
            ('[[mutant]]\nname = "x"\nbreaks = []\nvariant = "y"', "x: breaks takes"),
            ('[[mutant]]\nname = "x"\nbreaks = ["AB1"]\nvariant = "y"', "x: breaks takes"),
            ('[[mutant]]\nname = "x"\nbreaks = ["AB-1"]\nfile = "f.py"', "x: expected"),
            ('[[mutant]]\nname = "x"\nbreaks = ["AB-1"]\nvariant = "y"\ntest = "t"', "x: expected"),
            ('[[mutant]]\nname = "x"\nbreaks = ["AB-1"]\nvariant = "y"\n' * 2, "x is there twice"),
        ],
    )
    def test_a_malformed_list_of_mutants_is_refused(
        self, root: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
    ) -> None:
        self.record(root, "unit", {})
        self.mutants(root)
        (root / "tests" / "mutants" / "named.toml").write_text(text)
        assert requirements.main([], root) == 1
        assert complaint in capsys.readouterr().err

    @pytest.mark.parametrize("outcome", ["passed", "failed"])
    def test_an_unknown_id_is_always_an_error(
        self, root: Path, capsys: pytest.CaptureFixture[str], outcome: str
    ) -> None:
        tests = {"AB-9": ["u.py::t"]}
        self.record(root, "unit", tests if outcome == "passed" else {}, tests if outcome == "failed" else {})
        assert requirements.main([], root) == 1
        assert "AB-9 is not in docs/requirements.md, but is named by u.py::t" in capsys.readouterr().err

    def test_json_has_every_case(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.record(root, "unit", {"CD-1": ["u.py::c[1]", "u.py::c[2]"]})
        self.mutants(root, some=["CD-1"])
        assert requirements.main(["--json"], root) == 0
        content = json.loads(capsys.readouterr().out)
        assert (content["shown"], content["total"], content["unknown"]) == (1, 3, {})
        assert content["requirements"][2] == {
            "id": "CD-1",
            "section": "CD: other things",
            "text": "A last one.",
            "passed": ["u.py::c[1]", "u.py::c[2]"],
            "failed": [],
            "fails_with": ["mutant some"],
        }
        assert content["unproven"] == []


def ids_by_test(file: Path) -> dict[str, set[str]]:
    """Each test function of a file, as pytest names it, and the ids that it carries: of its own, of its class, of its
    module, and of the tables that its decorators name."""
    module, found = ast.parse(file.read_text(encoding="utf-8")), dict[str, set[str]]()
    tables = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def marks_in(nodes: Sequence[ast.AST], seen: frozenset[str] = frozenset()) -> set[str]:
        ids: set[str] = set()
        for node in (each for one in nodes for each in ast.walk(one)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                ids |= {str(ast.literal_eval(argument)) for argument in node.args}
            elif isinstance(node, ast.Name) and node.id in tables.keys() - seen:
                ids |= marks_in([tables[node.id]], seen | {node.id})
        return ids

    def walk(body: list[ast.stmt], before: str, marks: set[str]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{before}{node.name}::", marks | marks_in(node.decorator_list))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                found[f"{before}{node.name}"] = marks | marks_in(node.decorator_list)

    walk(module.body, "", marks_in([tables["pytestmark"]]) if "pytestmark" in tables else set())
    return found


class TestMutants:
    """Of this project. `python -m tools.mutants --named` tries them; here they are only looked at."""

    ENTRIES = tomllib.loads((REPOSITORY / requirements.MUTANTS).read_text(encoding="utf-8"))["mutant"]

    @pytest.mark.req("TS-3")
    def test_every_id_that_a_test_carries_has_one(self) -> None:
        carried = {
            id_
            for file in (REPOSITORY / "tests").rglob("test_*.py")
            for ids in ids_by_test(file).values()
            for id_ in ids
            if not id_.startswith(requirements.OF_TESTS)
        }
        assert len(carried) > 70
        assert carried - requirements.read_breakers(REPOSITORY / requirements.MUTANTS).keys() == set()

    @pytest.mark.parametrize("entry", [each for each in ENTRIES if "file" in each], ids=lambda each: each["name"])
    def test_it_can_be_made_and_names_a_test_that_carries_what_it_breaks(self, entry: dict[str, Any]) -> None:
        assert (REPOSITORY / entry["file"]).read_text(encoding="utf-8").count(entry["before"]) == 1
        assert entry["before"] != entry["after"]
        file, _, name = entry["test"].partition("[")[0].partition("::")
        carried = ids_by_test(REPOSITORY / file)[name]
        assert {id_ for id_ in entry["breaks"] if requirements.ID.fullmatch(id_)} - carried == set()

    def test_every_variant_is_known(self) -> None:
        named = {entry["variant"] for entry in self.ENTRIES if "variant" in entry}
        assert named - all_variants().keys() == set()


OUTCOMES = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError

@pytest.fixture
def breaks_late():
    yield
    raise RuntimeError

@pytest.mark.req("AB-1")
@pytest.mark.parametrize("x", [1, 2])
def test_parametrised(x):
    assert x == 1

@pytest.mark.req("AB-2", "AB-3")
def test_setup(broken): pass

@pytest.mark.req("AB-2")
def test_teardown(breaks_late): pass

@pytest.mark.req("AB-4")
def test_skipped(): pytest.skip()

@pytest.mark.req("AB-4")
@pytest.mark.xfail
def test_xfailed(): assert False

@pytest.mark.req("CD-1")
class TestClass:
    @pytest.mark.req("CD-2")
    def test_both(self): pass

    def test_of_class(self): pass

def test_unmarked(): pass
"""


class TestPlugin:
    @pytest.fixture(autouse=True)
    def inner_runs(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        pytester.syspathinsert(REPOSITORY)
        # Each inner run would import all installed plugins again, which takes a second.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    @staticmethod
    def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "tools.pytest_requirements", "--strict-markers", *arguments)

    @staticmethod
    def write(pytester: pytest.Pytester, name: str, text: str) -> None:
        file = pytester.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    @staticmethod
    def results(pytester: pytest.Pytester, tier: str = "unit") -> dict[str, Any]:
        content: dict[str, Any] = json.loads((pytester.path / ".reports" / f"requirements-{tier}.json").read_text())
        return content

    EXPECTED_PASSED = {  # noqa: RUF012
        "AB-1": ["tests/unit/test_x.py::test_parametrised[1]"],
        "CD-1": ["tests/unit/test_x.py::TestClass::test_both", "tests/unit/test_x.py::TestClass::test_of_class"],
        "CD-2": ["tests/unit/test_x.py::TestClass::test_both"],
    }
    EXPECTED_FAILED = {  # noqa: RUF012
        "AB-1": ["tests/unit/test_x.py::test_parametrised[2]"],
        "AB-2": ["tests/unit/test_x.py::test_setup", "tests/unit/test_x.py::test_teardown"],
        "AB-3": ["tests/unit/test_x.py::test_setup"],
    }

    def test_outcomes_are_recorded_by_id(self, pytester: pytest.Pytester) -> None:
        self.write(pytester, "tests/unit/test_x.py", OUTCOMES)
        self.run(pytester, "tests")
        results = self.results(pytester)
        assert results.keys() == {"passed", "failed", "collected_at"}
        assert results["passed"] == self.EXPECTED_PASSED
        assert results["failed"] == self.EXPECTED_FAILED

    def test_the_same_is_recorded_under_xdist(self, pytester: pytest.Pytester) -> None:
        pytest.importorskip("xdist")
        self.write(pytester, "tests/unit/test_x.py", OUTCOMES)
        self.run(pytester, "-p", "xdist", "-n", "2", "tests")
        results = self.results(pytester)
        assert (results["passed"], results["failed"]) == (self.EXPECTED_PASSED, self.EXPECTED_FAILED)
        self.write(pytester, "tests/unit/test_x.py", "def test_new(): pass\n")
        self.run(pytester, "-p", "xdist", "-n", "2", "tests")
        results = self.results(pytester)
        assert (results["passed"], results["failed"]) == ({}, {})

    def test_each_tier_has_its_file(self, pytester: pytest.Pytester) -> None:
        for name in ("tests/unit/deep/test_a.py", "tests/simulated/test_b.py", "tests/test_c.py"):
            self.write(pytester, name, "import pytest\n@pytest.mark.req('AB-1')\ndef test_it(): pass\n")
        self.run(pytester, "tests")
        assert self.results(pytester, "unit")["passed"] == {"AB-1": ["tests/unit/deep/test_a.py::test_it"]}
        assert self.results(pytester, "simulated")["passed"] == {"AB-1": ["tests/simulated/test_b.py::test_it"]}
        assert self.results(pytester, "other")["passed"] == {"AB-1": ["tests/test_c.py::test_it"]}

    def test_a_run_replaces_only_what_it_ran(self, pytester: pytest.Pytester) -> None:
        passing = "import pytest\n@pytest.mark.req('AB-1')\ndef test_it(): pass\n"
        for name in "ab":
            self.write(pytester, f"tests/unit/test_{name}.py", passing)
        self.run(pytester, "tests")
        self.write(pytester, "tests/unit/test_b.py", passing.replace("pass", "assert False"))
        self.run(pytester, "tests/unit/test_b.py")
        results = self.results(pytester)
        assert results["passed"] == {"AB-1": ["tests/unit/test_a.py::test_it"]}
        assert results["failed"] == {"AB-1": ["tests/unit/test_b.py::test_it"]}

    @pytest.mark.parametrize("now", ["def test_it(): pass\n", "import pytest\ndef test_it(): pytest.skip()\n"])
    def test_a_test_that_no_longer_shows_it_is_forgotten(self, pytester: pytest.Pytester, now: str) -> None:
        self.write(pytester, "tests/unit/test_a.py", "import pytest\n@pytest.mark.req('AB-1')\ndef test_it(): pass\n")
        self.run(pytester, "tests")
        self.write(pytester, "tests/unit/test_a.py", now)
        self.run(pytester, "tests")
        assert self.results(pytester)["passed"] == {}

    def test_tests_that_are_gone_are_forgotten_and_deselected_ones_are_not(self, pytester: pytest.Pytester) -> None:
        mark = "@pytest.mark.req('AB-1')\n"
        kept = f"import pytest\n{mark}def test_kept(): pass\n{mark}def test_deselected(): pass\n"
        self.write(pytester, "tests/unit/test_a.py", f"{kept}{mark}def test_renamed(): pass\n")
        self.write(pytester, "tests/unit/test_b.py", kept)
        self.run(pytester, "tests")
        self.write(pytester, "tests/unit/test_a.py", kept)
        (pytester.path / "tests/unit/test_b.py").unlink()

        self.run(pytester, "tests/unit/test_a.py::test_kept")
        # One test by name says nothing about the rest of its file.
        assert "tests/unit/test_a.py::test_renamed" in self.results(pytester)["passed"]["AB-1"]

        self.run(pytester, "tests", "-k", "kept")
        assert self.results(pytester)["passed"] == {
            "AB-1": ["tests/unit/test_a.py::test_deselected", "tests/unit/test_a.py::test_kept"]
        }

    @pytest.mark.parametrize("arguments", ["'AB1'", "'ab-1'", "'AB-0'", "1", "", "'AB-1', why='x'"])
    def test_a_malformed_mark_stops_the_run(self, pytester: pytest.Pytester, arguments: str) -> None:
        self.write(
            pytester, "tests/unit/test_a.py", f"import pytest\n@pytest.mark.req({arguments})\ndef test_it(): pass\n"
        )
        result = self.run(pytester, "tests")
        assert result.ret == pytest.ExitCode.INTERRUPTED
        result.stdout.fnmatch_lines(["tests/unit/test_a.py::test_it: *"])
        assert not (pytester.path / ".reports").exists()
