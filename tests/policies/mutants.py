"""Mutants of a rules module: each with one condition, comparison or constant of a check changed."""

from __future__ import annotations

import ast
import copy
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from policies.rule import Rule

_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
}


@dataclass(frozen=True)
class Mutant:
    """A module with one mutation; ``description`` says where and how."""

    description: str
    module: ModuleType

    def rule(self, name: str) -> Rule:
        (rule_,) = [rule for rule in self.module.RULES if rule.id == name]
        assert isinstance(rule_, Rule)
        return rule_


def mutants(name: str) -> Iterator[Mutant]:
    source = importlib.import_module(f"policies.{name}")
    assert source.__file__
    tree = ast.parse(Path(source.__file__).read_text())
    mutations = [(index, change) for index, node in enumerate(ast.walk(tree)) for change in _changes(node)]
    for index, change in mutations:
        mutated = copy.deepcopy(tree)
        node = list(ast.walk(mutated))[index]
        before = ast.unparse(node)
        _break(node, change)
        description = f"{name}.py:{getattr(node, 'lineno', 0)}: {before!r} -> {ast.unparse(node)!r}"
        module = ModuleType(f"policies.{name}")
        code = compile(ast.fix_missing_locations(mutated), source.__file__, "exec")
        exec(code, module.__dict__)
        yield Mutant(description, module)


def _changes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.If | ast.IfExp):
        return ["turn"]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
        return ["swap"]
    if isinstance(node, ast.BoolOp):
        return ["other", *(f"drop {index}" for index in range(len(node.values)))]
    if isinstance(node, ast.comprehension):
        return [f"unless {index}" for index in range(len(node.ifs))]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all"):
        return ["any or all"]
    return []


def _break(node: ast.AST, change: str) -> None:
    word, _, number = change.partition(" ")
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Compare):
        node.ops[0] = _SWAPPED[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp) and word == "other":
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.BoolOp):
        node.values[int(number)] = ast.Constant(isinstance(node.op, ast.And))
    elif isinstance(node, ast.comprehension):
        node.ifs[int(number)] = ast.UnaryOp(ast.Not(), node.ifs[int(number)])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        node.func.id = "all" if node.func.id == "any" else "any"
