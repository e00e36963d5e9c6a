"""The mutants of a source file: every place where one small mistake can be made.

Left alone is what no test should look at: annotations, docstrings, strings, log calls, the words of an exception,
`__repr__`, assertions, decorators. So are whole numbers from ten on: 4097 in place of 4096 as a bound is no mistake.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

_COMPARISONS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
_COMPARISON = re.compile(rb"is\s+not\b|not\s+in\b|is\b|in\b|<=|>=|==|!=|<|>")
_SUMS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*"}
_SUM = re.compile(rb"//|[-+*/%]")
_STEPS = {"+=": "-=", "-=": "+="}
_STEP = re.compile(rb"[-+]=")
_JUNCTIONS = {"and": "or", "or": "and"}
_JUNCTION = re.compile(rb"\b(?:and|or)\b")
_EXTREMES = {"min": "max", "max": "min"}
_LOGGERS = frozenset({"_log", "log", "logger", "logging", "warnings"})
_FOR_PEOPLE = frozenset({"__repr__", "__str__", "__rich_repr__"})
_LARGE = 10


@dataclass(frozen=True)
class Mutant:
    """One mistake. It is known by the text of its line and not by the number, which other changes move."""

    file: str
    function: str
    text: str
    """The line in which the change begins, without the white space around it."""
    operator: str
    nth: int
    """Which one, of those in this file that are equal in all of the above."""
    line: int
    start: int
    end: int
    after: str

    @property
    def id(self) -> str:
        return known_as(self.file, self.function, self.text, self.operator, self.nth)

    def __str__(self) -> str:
        return known_as(f"{self.file}:{self.line}", self.function, self.text, self.operator, self.nth)

    def applied(self, source: str) -> str:
        body = source.encode()
        return (body[: self.start] + self.after.encode() + body[self.end :]).decode()


def known_as(file: str, function: str, text: str, operator: str, nth: int) -> str:
    number = f" #{nth}" if nth > 1 else ""
    return f"{file} {function} [{operator}]{number} {text}"


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """All of one file, in the order of their places."""
    return find(file, (root / file).read_text(encoding="utf-8"))


def find(file: str, source: str) -> list[Mutant]:
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for mutant in sorted(finder.found, key=lambda mutant: (mutant.start, mutant.end, mutant.operator)):
        seen[mutant.id] += 1
        found.append(replace(mutant, nth=seen[mutant.id]))
    return found


def drawn(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """In the order of this seed. Each has its own place in it: a change elsewhere in the source changes no draw."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.id}".encode()).digest())


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._file = file
        self._body = source.encode()
        self._lines = [0]
        for line in self._body.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope: list[str] = []
        self._assigned: list[set[str]] = []
        """The names that have a value so far, for each function around."""
        self._returns = [""]

    # What a place becomes

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _change(self, operator: str, start: int, end: int, after: str) -> None:
        line = self._body.count(b"\n", 0, start) + 1
        text = self._body[self._lines[line - 1] : self._lines[line]].decode().strip()
        function = ".".join(self._scope) or "<module>"
        self.found.append(Mutant(self._file, function, text, operator, 1, line, start, end, after))

    def _becomes(self, operator: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._change(operator, self._start(node), self._end(node), after)

    def _token(self, left: ast.expr, right: ast.expr, token: re.Pattern[bytes], others: dict[str, str]) -> None:
        """The operator that stands between two operands becomes another."""
        start, end = self._end(left), self._start(right)
        for match in re.compile(rb"#[^\n]*|" + token.pattern).finditer(self._body, start, end):
            before = " ".join(match[0].decode().split())
            if before in others:
                self._change(f"{before} -> {others[before]}", match.start(), match.end(), others[before])
                return

    def _drop(self, node: ast.stmt) -> None:
        self._becomes("drop", node, "pass")

    def _condition(self, test: ast.expr, *, ends: bool = True) -> None:
        # Without the assignment in it, what follows would name nothing.
        if not isinstance(test, ast.Constant) and not any(isinstance(node, ast.NamedExpr) for node in ast.walk(test)):
            if ends:
                self._becomes("if True", test, "True")
            self._becomes("if False", test, "False")
        self.visit(test)

    def _initial(self) -> bool:
        """Is this where attributes get their first values?"""
        return not self._assigned or self._scope[-1] == "__init__"

    def _all(self, nodes: Sequence[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    # Where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self._all(node.body)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _FOR_PEOPLE:
            return
        self._scope.append(node.name)
        given = node.args
        self._all([*given.defaults, *given.kw_defaults])
        self._assigned.append({argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)})
        self._returns.append(ast.unparse(node.returns) if node.returns is not None else "")
        self._all(node.body)
        self._returns.pop()
        self._assigned.pop()
        self._scope.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) and self._assigned:
            self._assigned[-1].add(node.id)

    # Statements

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._drop(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(called, ast.Call):
            if _is_log(called):
                return
            self._drop(node)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        # The first value of a name or an attribute cannot go: what follows would name nothing.
        known = self._assigned[-1] if self._assigned else set()
        places = [part for target in node.targets for part in _parts(target)]
        if all(not isinstance(place, ast.Name) or place.id in known for place in places) and not self._initial():
            self._drop(node)
        self._all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._all([node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        if not _is_text(node.value):
            self._token(node.target, node.value, _STEP, _STEPS)
        self._all([node.target, node.value])

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if not isinstance(value, ast.Constant):
            for after in ("True", "False") if self._returns[-1] == "bool" else ("None",):
                self._becomes(f"return {after}", value, after)
        self.visit(value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._condition(node.test)
        self._all([*node.body, *node.orelse])

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test, ends=False)  # True: would only fail by never ending
        self._all([*node.body, *node.orelse])

    # Expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self._all([node.body, node.orelse])

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._all([node.target, node.iter])
        for test in node.ifs:
            self._condition(test)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in pairwise(operands):
            self._token(left, right, _COMPARISON, _COMPARISONS)
        self._all(operands)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self._token(left, right, _JUNCTION, _JUNCTIONS)
        self._all(node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = self._start(node)
        if isinstance(node.op, ast.Not):
            self._change("drop not", start, start + len("not"), "")
        elif isinstance(node.op, ast.USub):
            self._change("drop -", start, start + len("-"), "")
        self.visit(node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not _is_text(node):
            self._token(node.left, node.right, _SUM, _SUMS)
        self._all([node.left, node.right])

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._becomes(f"{value} -> {not value}", node, str(not value))
        elif isinstance(value, int | float) and abs(value) < _LARGE:
            self._becomes(f"{value} -> {value + 1}", node, str(value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Call(self, node: ast.Call) -> None:
        if _is_log(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
            other = _EXTREMES[node.func.id]
            self._becomes(f"{node.func.id} -> {other}", node.func, other)
        # `zip(..., strict=True)` is an assertion.
        self._all([node.func, *node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "strict")])


def _is_log(call: ast.Call) -> bool:
    func: ast.expr = call.func
    while isinstance(func, ast.Attribute):
        if func.attr in _LOGGERS:
            return True
        func = func.value
    return isinstance(func, ast.Name) and func.id in _LOGGERS


def _is_text(node: ast.expr) -> bool:
    """Strings and lists are joined by `+`, and minus would fail wherever it stands."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    joined = ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp
    return isinstance(node, joined) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _parts(part)
    else:
        yield target
