"""Where a module reads sentences that are for people, by its syntax tree.

A sentence is the text of an exception or of a fault, what has a name or an attribute such as
`message` and `reason`, and what a check gives. It is followed through the assignments and loops of
a function. To read it is to take it apart, to search in it, or to compare it.
"""

import ast
import re

WORDS = (
    "damages?|faults?|legend|messages?|msg|noticed|notes?|problems?|reasons?|remarks?|remedy|"
    "remedies|warnings?"
)
SENTENCE = re.compile(f"_?({WORDS})")
CHECK = re.compile(f"(.*_)?(checks?|{WORDS})(_.*)?")
ERROR = re.compile(r"Error|Exception|Invalid|Fault\b")
OF_ERRORS = ("args", "lines", "message", "msg", "sentence", "text")
TAKES_APART = (
    "count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace",
    "rfind", "rindex", "rpartition", "rsplit", "split", "startswith",
)  # fmt: skip
MATCHES = ("findall", "finditer", "fullmatch", "match", "search", "sub", "split")
KEEPS = ("casefold", "decode", "lower", "lstrip", "rstrip", "splitlines", "strip", "upper")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def readings(tree):
    """Yield (line, code) for everything that reads a sentence."""
    constants = set(_constants(tree))
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))):
        nodes = list(_inside(scope))
        names = _Names(scope, nodes, constants)
        yield from ((node.lineno, ast.unparse(node)) for node in nodes if names.read_by(node))


def _constants(tree):
    """Names at the top of a module that are sentences."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_literal(node.value):
            yield from (name.id for name in node.targets if isinstance(name, ast.Name))


def _is_literal(node):
    """Whether a node is a text of three words or more."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and len(node.value.split()) > 2


def _inside(scope):
    """The nodes of a scope, without those of functions in it."""
    open_ = list(ast.iter_child_nodes(scope))
    while open_:
        node = open_.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            open_ += ast.iter_child_nodes(node)


def _bindings(nodes):
    """Yield (target, value) of assignments and loops."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=value):
                yield target, value
            case ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield target, value


def _names_in(target):
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


class _Names:
    """The names of a scope that are errors or sentences."""

    def __init__(self, scope, nodes, constants):
        self.constants, self.sentences = constants, set()
        self.errors = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
        arguments = [] if isinstance(scope, ast.Module) else scope.args.args
        for argument in arguments:
            kind = ast.unparse(argument.annotation) if argument.annotation else argument.arg
            if ERROR.search(kind) or argument.arg == "error":
                self.errors.add(argument.arg)
        size = -1
        while size < len(self.sentences):  # until no assignment adds one
            size = len(self.sentences)
            for target, value in _bindings(nodes):
                if self.is_sentence(value):
                    self.sentences.update(_names_in(target))

    def is_sentence(self, node):
        """Whether an expression is a sentence, or has some."""
        match node:
            case ast.Name(id=name):
                return name in self.sentences or bool(SENTENCE.fullmatch(name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in self.errors:
                return attribute in OF_ERRORS
            case ast.Attribute(attr=attribute):
                return bool(SENTENCE.fullmatch(attribute)) or attribute == "sentence"
            case ast.Subscript(slice=ast.Constant(value="msg" | "message" | "reason")):
                return True
            case ast.Subscript(value=value) | ast.NamedExpr(value=value):
                return self.is_sentence(value)
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name) as value]):
                return name in self.errors or self.is_sentence(value)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in KEEPS:
                return self.is_sentence(value)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return bool(CHECK.fullmatch(name))
            case ast.BoolOp(values=values):
                return any(map(self.is_sentence, values))
            case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=name)), *_]):
                return name in self.errors
        return False

    def read_by(self, node):
        """Whether an expression takes a sentence apart, searches in it, or compares it."""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
                if method in TAKES_APART and arguments and self.is_sentence(value):
                    return True
                return method in MATCHES and any(map(self.is_sentence, arguments))
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._is_compared(left, operator, right)
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Attribute(attr=method))):
                takes = method in ("partition", "rpartition")
                return takes and any(map(SENTENCE.fullmatch, _names_in(target)))
        return False

    def _is_compared(self, left, operator, right):
        if isinstance(operator, ast.In | ast.NotIn) and self.is_sentence(right):
            return True
        if not isinstance(operator, ast.Eq | ast.NotEq):
            return False
        sides = (left, right)
        if any(isinstance(side, ast.Constant) and not side.value for side in sides):
            return False  # whether there is one
        return any(
            _is_literal(side) or self.is_sentence(side) or self._is_constant(side) for side in sides
        )

    def _is_constant(self, node):
        return isinstance(node, ast.Name) and node.id in self.constants
