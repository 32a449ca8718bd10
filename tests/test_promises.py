"""tests/PROMISES.md tells the truth: every promise has tests that exist, and a mistake that one of them finds."""

import ast
import functools
from pathlib import Path

import pytest

from tests.mutations.__main__ import check
from tests.mutations.kept import fingerprint, keep, rows
from tests.mutations.table import MUTATIONS, Mutation
from tests.report import mapped

ROOT = Path(__file__).parents[1]
PROMISES = {number: (title, tests) for number, title, tests in mapped()}


def test_all_thirty_eight_are_there() -> None:
    """In order, and each once."""
    assert [number for number, _, _ in mapped()] == list(range(1, 39))


@pytest.mark.parametrize("number", PROMISES)
def test_each_has_tests_that_exist(number: int) -> None:
    _, tests = PROMISES[number]
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name in names_in(file), f"{test} does not exist"


@pytest.mark.parametrize("number", PROMISES)
def test_each_says_how_much_is_run(number: int) -> None:
    """A count below the promised one is stated, with where the full one runs."""
    text = (ROOT / "tests" / "PROMISES.md").read_text(encoding="utf-8")
    section = text.partition(f"\n### {number}. ")[2].partition("\n###")[0]
    assert "\nCI: " in section
    assert " Full: " in section
    full = [test for test in PROMISES[number][1] if is_full(test)]
    assert not full or "Full: the same." not in section, f"{full} run only in full: say what the full count is"


def test_each_has_a_mistake() -> None:
    assert sorted({mutation.promise for mutation in MUTATIONS}) == list(range(1, 39))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.promise))
def test_the_mistake_can_be_made(mutation: Mutation, tmp_path: Path) -> None:
    """Its place is still there, once, and so is the test that is to find it. `python -m tests.mutations --check` asks
    the same."""
    file = tmp_path / mutation.file
    file.parent.mkdir(parents=True, exist_ok=True)
    right = (ROOT / mutation.file).read_text(encoding="utf-8")
    file.write_text(right, encoding="utf-8")
    check(tmp_path, mutation)
    assert file.read_text(encoding="utf-8") == right
    module, _, name = mutation.test.partition("::")
    assert name in names_in(module)


def test_what_was_found_is_kept_from_one_sitting_to_the_next(tmp_path: Path) -> None:
    """What was found of a mistake is not lost with the next one; of one that is another by now, it is."""
    found = tmp_path / "found.json"
    first, second = MUTATIONS[:2]
    for one in (second, first):
        keep(one, {"mutation": fingerprint(one), "found": True, "promise": one.promise}, found)
    kept = [(mutation, row["promise"]) for mutation, row in rows(found) if row is not None]
    assert kept == [(first, first.promise), (second, second.promise)]
    text = found.read_text(encoding="utf-8")
    found.write_text(text.replace(fingerprint(first), "of another one"), encoding="utf-8")
    assert [mutation for mutation, row in rows(found) if row is not None] == [second]


@functools.cache
def named_in(file: str) -> dict[str, ast.AST]:
    """What the module calls by a name: its functions, classes and tables."""
    named: dict[str, ast.AST] = {}
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                named[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                named[name] = node
    return named


def names_in(file: str) -> dict[str, ast.AST]:
    return {name: node for name, node in named_in(file).items() if name.startswith("test_")}


def is_full(test: str) -> bool:
    """Whether some of it runs only in full: a mark on the test, on one of its parameters, or on its module, also by
    way of the tables and functions of its module that they are taken from."""
    file, _, name = test.partition("::")
    named = named_in(file)
    node = named[name]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    looked_at: set[str] = set()
    left: list[ast.AST] = [*node.decorator_list, *(named[mark] for mark in ["pytestmark"] if mark in named)]
    while left:
        for part in ast.walk(left.pop()):
            if isinstance(part, ast.Attribute) and ast.unparse(part) == "pytest.mark.full":
                return True
            if isinstance(part, ast.Name) and part.id in named and part.id not in looked_at:
                looked_at.add(part.id)
                left.append(named[part.id])
    return False
