"""The mutation run makes the mistakes that it names, and knows which of them a test has caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import lists
from tools.mutants.__main__ import main, shares
from tools.mutants.sources import drawn, find, mutants_of
from tools.mutants.trial import Verdict, judge

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def changes(source: str) -> dict[str, str]:
    """Operator to mutated source; the number of the mutant behind the operator where there are several."""
    return {
        mutant.operator + (f" #{mutant.nth}" if mutant.nth > 1 else ""): mutant.applied(source)
        for mutant in find("a.py", source)
    }


@pytest.mark.parametrize(
    ("before", "operator", "after"),
    [
        ("x = a < b", "< -> <=", "x = a <= b"),
        ("x = a >= b", ">= -> >", "x = a > b"),
        ("x = (a) == (b)", "== -> !=", "x = (a) != (b)"),
        ("x = a is  not b", "is not -> is", "x = a is b"),
        ("x = a not in b", "not in -> in", "x = a in b"),
        ("x = a < b < c", "< -> <= #2", "x = a < b <= c"),
        ("x = (a or b) and (c or d)", "and -> or", "x = (a or b) or (c or d)"),
        ("x = (\n    a  # and so on\n    and b\n)", "and -> or", "x = (\n    a  # and so on\n    or b\n)"),
        ("x = not (a or b)", "drop not", "x =  (a or b)"),
        ("x = -a", "drop -", "x = a"),
        ("x = a + b", "+ -> -", "x = a - b"),
        ("x = a // b", "// -> *", "x = a * b"),
        ("x += 1", "+= -> -=", "x -= 1"),
        ("x = a[1]", "1 -> 2", "x = a[2]"),
        ("x = 0.5", "0.5 -> 1.5", "x = 1.5"),
        ("x = f(a=True)", "True -> False", "x = f(a=False)"),
        ("x = min(a, b)", "min -> max", "x = max(a, b)"),
        ("x = b if a else c", "if True", "x = b if True else c"),
        ("x = [a for a in b if a]", "if False", "x = [a for a in b if False]"),
        ("if a:\n    b()\nelse:\n    c()", "if False", "if False:\n    b()\nelse:\n    c()"),
        ("while a:\n    b()", "if False", "while False:\n    b()"),
        ("def f():\n    return a", "return None", "def f():\n    return None"),
        ("def f() -> bool:\n    return a", "return True", "def f() -> bool:\n    return True"),
        ("async def f():\n    await g(\n        a,\n    )", "drop", "async def f():\n    pass"),
        ("def f():\n    self.a = b", "drop", "def f():\n    pass"),
        ("def f(a):\n    a = b", "drop", "def f(a):\n    pass"),
        ("def f():\n    raise E('word')", "drop", "def f():\n    pass"),
        ("for a in b:\n    continue", "drop", "for a in b:\n    pass"),
        ('def f():\n    x = "für"; y = a < b', "< -> <=", 'def f():\n    x = "für"; y = a <= b'),
    ],
)
def test_each_operator_makes_its_one_change(before: str, operator: str, after: str) -> None:
    assert changes(before)[operator] == after


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "x: int | None",
        "def f(a: Literal[1]) -> tuple[int, 1]: ...",
        "_log.warning('%d', a + 1)",
        "await self._log.debug(min(a, b))",
        "assert a < b",
        "x = zip(a, b, strict=True)",
        "class A:\n    def __repr__(self):\n        return a < b",
        "x = f'{a + 1}'",
        "x = a + ', ' + b",
        "x = 4096",
        "x = 'word'",
        "@decorated(1)\nclass A(Base, frozen=True):\n    pass",
        "class A:\n    def __init__(self):\n        self.a = b",
        "def f():\n    x = a",
        "def f():\n    return",
        "def f():\n    return None",
        "if TYPE_CHECKING:\n    a = 1",
    ],
)
def test_what_no_test_should_look_at_is_left_alone(source: str) -> None:
    assert changes(source) == {}


def test_the_words_of_an_exception_are_left_alone() -> None:
    assert list(changes("def f():\n    raise E(f'{a}', a + 1) from None")) == ["drop"]


def test_a_condition_that_assigns_is_not_replaced() -> None:
    assert list(changes("if (x := a) is None:\n    b(x)")) == ["is -> is not", "drop"]


def test_every_mutant_of_the_drawn_sources_is_python() -> None:
    for area in lists.read_areas(REPOSITORY / "tests" / "mutants" / "areas.toml"):
        for file in area.sources:
            source = (REPOSITORY / file).read_text(encoding="utf-8")
            for mutant in drawn(mutants_of(REPOSITORY, file), 1)[:5]:
                compile(mutant.applied(source), file, "exec")


TWICE = "def f():\n    if a < b:\n        c()\n    if a < b:\n        d()\n"


def test_a_mutant_is_known_again_when_lines_move() -> None:
    here, there = find("a.py", TWICE), find("a.py", "import x\n\n\n" + TWICE)
    assert [mutant.id for mutant in here] == [mutant.id for mutant in there]
    assert [mutant.line + 3 for mutant in here] == [mutant.line for mutant in there]


def test_equal_lines_of_one_function_are_numbered() -> None:
    ids = [mutant.id for mutant in find("a.py", TWICE)]
    assert len(set(ids)) == len(ids)
    assert "a.py f [< -> <=] #2 if a < b:" in ids


def test_a_change_elsewhere_changes_no_draw() -> None:
    before = drawn(find("a.py", TWICE), 7)
    after = drawn(find("a.py", TWICE + "\n\ndef g():\n    return a + b\n"), 7)
    assert [mutant.id for mutant in before] == [mutant.id for mutant in after if mutant.function == "f"]
    assert {tuple(mutant.id for mutant in drawn(before, seed)) for seed in range(9)} != {before[0].id}


def test_the_count_is_spread_evenly() -> None:
    assert list(shares(200, 7)) == [29, 29, 29, 29, 28, 28, 28]


def survivor(**changed: object) -> lists.Survivor:
    fields = {"file": "a.py", "function": "f", "text": "if a < b:", "operator": "< -> <=", "reason": "they never meet"}
    return lists.Survivor(**{**fields, "verdict": "equivalent", **changed})  # type: ignore[arg-type]


def test_a_survivor_that_nobody_judged_is_reported() -> None:
    name = survivor().id
    assert [text.partition(":")[0] for text in lists.complaints([], {name}, {name: True})] == ["survived"]
    assert list(lists.complaints([survivor()], {name}, {name: True})) == []


def test_the_list_of_survivors_can_only_shrink() -> None:
    name = survivor().id
    (caught,) = lists.complaints([survivor()], {name}, {name: False})
    assert "a test sees it now" in caught
    (gone,) = lists.complaints([survivor()], set(), {})
    assert "no such mutant" in gone


def test_an_entry_that_is_proposed_is_known_as_its_mutant(tmp_path: Path) -> None:
    file = tmp_path / "survivors.toml"
    mutants = [*find("a.py", TWICE), *find("a.py", "x = a['b'] + 1\ny = a['\\n'] + f(\"c\") - 1\n")]
    entries = "\n".join(lists.as_entry(mutant) for mutant in mutants)
    file.write_text(entries.replace('verdict = ""', 'verdict = "accepted"').replace('reason = ""', 'reason = "so"'))
    assert [survivor.id for survivor in lists.read_survivors(file)] == [mutant.id for mutant in mutants]


JUDGED = """
[[survivor]]
file = "a.py"
function = "f"
text = "if a < b:"
operator = "< -> <="
verdict = "accepted"
reason = "so"
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[survivor]\n", "Expected"),
        ("[[mutants]]\n", "unknown mutants"),
        ('[[survivor]]\nfile = "a.py"\n', "missing required field"),
        (JUDGED.replace("accepted", "maybe"), "maybe"),
        (JUDGED.replace('"so"', '" "'), "no reason"),
        (JUDGED + JUDGED, "twice"),
    ],
)
def test_a_list_that_cannot_be_relied_on_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "survivors.toml"
    file.write_text(text)
    with pytest.raises(lists.Malformed, match=problem):
        lists.read_survivors(file)


def test_a_named_mutant_has_an_edit_or_a_variant(tmp_path: Path) -> None:
    file = tmp_path / "named.toml"
    for entry in ('name = "a"', 'name = "a"\nvariant = "b"\nfile = "c"'):
        file.write_text(f"[[mutant]]\n{entry}\n")
        with pytest.raises(lists.Malformed, match="variant"):
            lists.read_named(file)


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, "3 passed", Verdict.SURVIVED),
        (1, "FAILED tests/a.py::test_b - assert 1 == 2\n1 failed", Verdict.CAUGHT),
        (1, "ERROR tests/a.py::test_b[x - y] - ValueError: no\n1 error", Verdict.CAUGHT),
        (1, "FAILED tests/a.py::test_b - NameError: name 'c' is not defined", Verdict.INVALID),
        (2, "ERROR tests/a.py - ImportError: d", Verdict.INVALID),
        (4, "ERROR: not found: tests/a.py::test_c", Verdict.INVALID),
        (5, "no tests ran", Verdict.INVALID),
        (-11, "Fatal Python error: Segmentation fault", Verdict.CAUGHT),
    ],
)
def test_caught_is_a_test_that_failed_of_a_program_that_runs(status: int, output: str, verdict: Verdict) -> None:
    assert judge(status, output, 0.0).verdict is verdict


TINY = "def at_most(x: int) -> int:\n    if x > 9:\n        return 9\n    return x\n"
TEST = "from tiny import at_most\n\n\ndef test_it():\n    assert [at_most(x) for x in (8, 9, 11)] == [8, 9, 9]\n"
AREAS = '[[area]]\nname = "tiny"\n[area.sources]\n"src/tiny.py" = ["test_tiny.py"]\n'
SURVIVOR = """
[[survivor]]
file = "src/tiny.py"
function = "at_most"
text = "if x > 9:"
operator = "> -> >="
verdict = "equivalent"
reason = "at 9 both branches give 9"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A module with its test, which sees all but one mutant, and that one is equivalent."""
    texts = {"src/tiny.py": TINY, "test_tiny.py": TEST, "tests/mutants/areas.toml": AREAS, "pytest.ini": "[pytest]\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_equivalent_mutant_survives_until_it_is_judged(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "> -> >="], tiny) == 1
    reported = capsys.readouterr().out
    assert "SURVIVED src/tiny.py:2 at_most [> -> >=] if x > 9:" in reported
    (tiny / "tests" / "mutants" / "survivors.toml").write_text(SURVIVOR)
    assert main(["--only", "> -> >="], tiny) == 0


def test_a_judged_survivor_is_run_though_it_is_not_drawn(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / "tests" / "mutants" / "survivors.toml").write_text(SURVIVOR.replace("> -> >=", "if False"))
    assert main(["--count", "0"], tiny) == 1
    reported = capsys.readouterr().out
    assert "caught   src/tiny.py:2 at_most [if False] if x > 9:" in reported
    assert "test_tiny.py::test_it: assert [8, 9, 11] == [8, 9, 9]" in reported
    assert "a test sees it now" in reported


def test_tests_that_fail_without_a_mutant_judge_none(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / "test_tiny.py").write_text(TEST.replace("[8, 9, 9]", "[8, 8, 9]"))
    assert main(["--count", "1"], tiny) == 2
    assert "the tests fail without a mutant" in capsys.readouterr().err


NAMED = """
[[mutant]]
name = "no-bound"
file = "src/tiny.py"
before = "if x > 9:"
after = "{after}"
test = "test_tiny.py::test_it"
"""


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [("if x > 99:", 0, "caught"), ("if x >= 9:", 1, "SURVIVED"), ("if y > 9:", 1, "INVALID")],
)
def test_a_named_mutant_is_to_be_caught_by_its_test(
    after: str, status: int, said: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tiny / "tests" / "mutants" / "named.toml"
    named.write_text(NAMED.format(after=after) + '\n[[mutant]]\nname = "pinned"\nvariant = "rebuild-at-once"\n')
    assert main(["--named"], tiny) == status
    reported = capsys.readouterr().out
    assert f"{said:<8} no-bound" in reported
    assert "variant  pinned" in reported


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (NAMED.format(after="pass").replace("if x > 9:", "return"), "occurs 2 times"),
        ('[[mutant]]\nname = "a"\nvariant = "no-such-variant"\n', "UNKNOWN"),
    ],
)
def test_a_named_mutant_that_is_not_there_is_reported(
    entry: str, problem: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny / "tests" / "mutants" / "named.toml").write_text(entry)
    assert main(["--named"], tiny) != 0
    said = capsys.readouterr()
    assert problem in said.out + said.err


def test_the_areas_name_files_that_are_there() -> None:
    areas = lists.read_areas(REPOSITORY / "tests" / "mutants" / "areas.toml")
    named = [name for area in areas for name in (*area.sources, *area.tests_of_all(area.sources))]
    assert [name for name in named if not (REPOSITORY / name).is_file()] == []
