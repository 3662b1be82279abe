"""Parse and evaluate `require` and `where`: conditions over the fields of a row.

Python parses the text into a syntax tree, and this module evaluates it without `eval`. Nodes
outside of a whitelist are refused.
Allowed are numbers, strings, true, false, null, fields and symbols; + - * / // %; comparisons and
`in [...]`; and, or, not.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from itertools import chain, pairwise, product
from typing import Any

from ablate.errors import Fault, Invalid, unknown_name
from ablate.study.yaml_nodes import plain_scalar

MAX_LENGTH = 500
MAX_DEPTH = 64

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip
_TEXT = "a text"
_KINDS = {str: _TEXT, int: "a number", float: "a number", bool: "true or false"}
_WORDS = {"true": True, "false": False, "null": None}


class Expression:
    """A parsed condition; `text` is the condition as written."""

    def __init__(self, text: str) -> None:
        """Parse a condition.

        Raises:
            Invalid: the text is not a condition, or a part of it is not on the whitelist.
        """
        self.text = text.strip()
        if len(text) > MAX_LENGTH:
            raise Invalid(
                f"the condition has {len(text)} characters; at most {MAX_LENGTH} are allowed"
            )
        try:  # Python only warns of "1if" and "\\d": here they are errors
            with warnings.catch_warnings(action="error"):
                self.tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
            raise Invalid(
                f'"{text}" is not a valid condition; an example: h * d_k == d_model'
            ) from None
        self._check_whitelist()

    def _check_whitelist(self) -> None:
        """Refuse nodes outside of the whitelist, also in parts that evaluation may skip."""
        # Without recursion, so that deep nesting cannot exhaust the stack.
        level: list[ast.AST] = [self.tree]
        for _ in range(MAX_DEPTH):
            for node in level:
                if isinstance(node, ast.expr) and not _is_allowed(node):
                    written = ast.get_source_segment(self.text, node)
                    raise Invalid(f'"{written}" is not allowed in a condition')
            level = list(chain.from_iterable(map(ast.iter_child_nodes, level)))
            if not level:
                return
        raise Invalid(f"the condition is nested more than {MAX_DEPTH} levels deep")

    def fields(self, names: Mapping[str, Any]) -> list[str]:
        """The fields in the condition, in the order of their first use."""
        nodes = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and n.id in names]
        nodes.sort(key=lambda n: (n.lineno, n.col_offset))
        return list(dict.fromkeys(n.id for n in nodes))

    def check_names(self, names: Collection[str]) -> None:
        """Check that every name in the condition is one of `names`.

        Raises:
            Invalid: a name is unknown. The message has the nearest name.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id not in names and node.id not in _WORDS:
                unknown = unknown_name("field", node.id, names, remedy="")
                raise Invalid(unknown.about(f'"{self.text}"'))

    def check_types(self, types: Mapping[str, Collection[type]]) -> None:
        """Check that no comparison has a text on one side and can only have numbers or truth values
        on the other: `h == '8'` would hold for no row, and `h != '8'` for every row.

        Args:
            types: types of the values of each field, by name and symbol.

        Raises:
            Invalid: a comparison has sides of different types.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Compare):
                for left, right in pairwise((node.left, *node.comparators)):
                    for one, other in product(_items(left), _items(right)):
                        _check_sides(one, other, types)

    def __call__(self, names: Mapping[str, Any]) -> bool:
        """Whether the condition holds for these values of the fields.

        Raises:
            Invalid: the condition combines values of different types, divides by zero, or
                overflows.
        """
        try:
            return bool(_value(self.tree, {**_WORDS, **names}))
        except TypeError:
            raise Invalid(f'"{self.text}" compares or combines values of different types') from None
        except (ZeroDivisionError, OverflowError):
            raise Invalid(f'"{self.text}" divides by zero or overflows') from None


def _items(node: ast.expr) -> list[ast.expr]:
    """The items of a list, also of nested lists; for any other node, the node as only item."""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return [node]
    return list(chain.from_iterable(map(_items, node.elts)))


def _check_sides(left: ast.expr, right: ast.expr, types: Mapping[str, Collection[type]]) -> None:
    """Check two sides of a comparison that are no lists; see `Expression.check_types`."""
    for node, other in ((left, right), (right, left)):
        kinds = _kinds(other, types)
        if _kinds(node, types) != {_TEXT} or not kinds or _TEXT in kinds:
            continue
        text, written = ast.unparse(node), ast.unparse(other)
        remedy = ""
        match node:
            case ast.Constant(str(value)) if not isinstance(plain_scalar(value), str):
                remedy = f"write {value}"
        problem = f"{text} is {_TEXT}, and {written} is {' or '.join(sorted(kinds))}"
        raise Invalid(Fault(problem, remedy=remedy))


def _kinds(node: ast.expr, types: Mapping[str, Collection[type]]) -> set[str]:
    """What a node may be, apart from null: a text, a number, or true or false."""
    match node:
        case ast.Constant(value=value):
            found: Collection[type] = (type(value),)
        case ast.Name(id=name):
            found = types.get(name, ())
            if name in _WORDS:
                found = (type(_WORDS[name]),)
        case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            found = (int,)
        case _:
            found = (bool,)
    return {_KINDS[kind] for kind in found if kind in _KINDS}


def _is_allowed(node: ast.expr) -> bool:
    """Whether a node is on the whitelist, apart from its children."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float, str))
        case ast.UnaryOp(op=op):
            return isinstance(op, (ast.Not, ast.USub))
        case ast.BinOp(op=op):
            return type(op) in _ARITHMETIC
        case ast.Compare(ops=ops):
            return _COMPARISONS.keys() >= set(map(type, ops))
    return isinstance(node, (ast.Name, ast.List, ast.Tuple, ast.BoolOp))


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression whose nodes are on the whitelist.

    Raises:
        Invalid: a name is not in `names`.
        TypeError: values of different types are combined or compared.
    """
    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, names) for item in items]
        case ast.BoolOp(op=ast.And(), values=operands):
            return all(_value(part, names) for part in operands)
        case ast.BoolOp(values=operands):
            return any(_value(part, names) for part in operands)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _value(part, names)
        case ast.UnaryOp(operand=part):
            return -_number(part, names)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(left, names), _number(right, names))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            first = _value(left, names)
            # A chain stops at the first false part, as in Python.
            for comparison, part in zip(ops, comparators, strict=True):
                second = _value(part, names)
                if not _COMPARISONS[type(comparison)](first, second):
                    return False
                first = second
            return True
    raise Invalid(f'"{ast.unparse(node)}" is not allowed in a condition')


def _number(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an operand of arithmetic.

    Raises:
        TypeError: the operand is not a number. A string times a number could fill the memory.
    """
    value = _value(node, names)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return value
