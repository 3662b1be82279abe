"""Constituency trees: brackets of the Penn Treebank, and symbols that a model predicts.

The linearized form follows Vinyals et al., "Grammar as a Foreign Language" (2015): a symbol for
each bracket with its label, and a symbol for each word, such as `(S (NP XX )NP (VP XX )VP )S`. The
words are in the sentence. They can also replace their symbols, as in Choe and Charniak, "Parsing as
Language Modeling" (2016).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, TypeAlias

from ablate.config.parsing_data import WORD_SYMBOL, is_word_symbol
from ablate.errors import DataError

ROOT = "TOP"  # label of restored roots; scores leave it out
_ROOTS = ("", "TOP", "ROOT", "S1")
MAX_DEPTH = 200  # of brackets, also in predictions: trees are walked by recursion
_TRACE = "-NONE-"  # tag of empty elements
_TOKEN = re.compile(r"[()]|[^\s()]+")
# Words that are brackets, in the Penn Treebank's files.
_ESCAPES = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


class Leaf(NamedTuple):
    """A word and its part-of-speech tag."""

    tag: str
    word: str

    def __str__(self) -> str:
        return f"({self.tag} {escape_brackets(self.word)})"


@dataclass(frozen=True)
class Tree:
    """A constituent."""

    label: str
    children: tuple[Node, ...]

    def leaves(self) -> Iterator[Leaf]:
        """The words, from left to right."""
        for child in self.children:
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()

    def __str__(self) -> str:
        """The tree in brackets, in one line."""
        return f"({self.label} {' '.join(map(str, self.children))})"


Node: TypeAlias = "Leaf | Tree"


def escape_brackets(word: str) -> str:
    """A word with brackets as in the Penn Treebank: `-LRB-` for `(`."""
    return word.translate(_ESCAPES)


# Files


class _Open(NamedTuple):
    """An open bracket: its line, and the texts and constituents in it so far."""

    line: int
    parts: list[str | Node]

    @property
    def label(self) -> str:
        """The first part if it is a text; otherwise empty."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    def close(self) -> Node | None:
        """The word or the constituent in the bracket; None if it has neither."""
        inside = self.parts[1:] if self.label else self.parts
        children = [node for node in inside if not isinstance(node, str)]
        if children and len(children) == len(inside):
            return Tree(self.label, tuple(children))
        if len(inside) == 1 and isinstance(inside[0], str):
            return Leaf(self.label, inside[0])
        return None


def parse_brackets(lines: Iterator[str], path: str) -> Iterator[tuple[int, Tree]]:
    """Yield the trees of a bracketed file, each with the line that it begins in.

    Raises:
        DataError: brackets are unbalanced, or a bracket contains neither one word nor only
            constituents; with file and line.
    """
    stack: list[_Open] = []
    next_tree = 0  # first line that begins with a bracket although a tree is open; 0 for none
    for number, line in enumerate(lines, 1):
        if stack and not next_tree and line.startswith("("):
            next_tree = number
        for token in _TOKEN.findall(line):
            if token == "(":
                stack.append(_Open(number, []))
                if len(stack) > MAX_DEPTH:
                    raise DataError(f"{path}:{number}: brackets are more than {MAX_DEPTH} deep")
            elif not stack:
                raise DataError(f'{path}:{number}: "{token}" is outside of brackets')
            elif token != ")":
                stack[-1].parts.append(token)
            else:
                opened = stack.pop()
                node = opened.close()
                if node is None:
                    fault = "holds neither one word nor constituents alone"
                    raise DataError(f'{path}:{number}: "({opened.label}" {fault}')
                if stack:
                    stack[-1].parts.append(node)
                else:
                    yield opened.line, node if isinstance(node, Tree) else Tree("", (node,))
                    next_tree = 0
    if stack:
        hint = f"; line {next_tree} begins with another bracket" if next_tree else ""
        raise DataError(f'{path}:{stack[0].line}: "({stack[0].label}" is never closed{hint}')


def normalized(tree: Tree) -> Tree | None:
    """A tree as it is predicted: with root TOP, without function tags, traces and empty
    constituents; None for a tree without words.
    """
    reduced = _normalized(tree if tree.label in _ROOTS else Tree(ROOT, (tree,)))
    return None if reduced is None else Tree(ROOT, reduced.children)


def _normalized(tree: Tree) -> Tree | None:
    children: list[Node] = []
    for child in tree.children:
        if isinstance(child, Tree):
            reduced = _normalized(child)
            if reduced is not None:
                children.append(reduced)
        elif child.tag != _TRACE:
            children.append(child)
    if not children:
        return None
    return Tree(re.split("[-=]", tree.label, maxsplit=1)[0] or tree.label, tuple(children))


# The linearized form


def linearized(tree: Tree) -> str:
    """The symbols of a tree without its root, each word replaced by its tag: `(NP DT NN )NP`."""
    return " ".join(_symbols(tree.children))


def _symbols(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Leaf):
            yield node.tag
        else:
            yield f"({node.label}"
            yield from _symbols(node.children)
            yield f"){node.label}"


def leaves_of(text: str, sentence: str) -> list[Leaf]:
    """The words of a sentence, with the tags of its linearized tree."""
    tags = [symbol for symbol in text.split() if symbol[0] not in "()"]
    return list(starmap(Leaf, zip(tags, sentence.split(), strict=True)))


def predicted_leaves(text: str, sentence: str) -> list[Leaf] | None:
    """The words of a sentence with predicted tags, or XX without a predicted tag; None if the
    numbers of words and symbols differ.
    """
    tags = []
    for symbol in text.split():
        if is_word_symbol(symbol):
            tags.append(symbol.removeprefix(f"{WORD_SYMBOL}/"))
        elif symbol[0] not in "()":
            tags.append(WORD_SYMBOL)
    words = sentence.split()
    if len(tags) != len(words):
        return None
    return list(starmap(Leaf, zip(tags, words, strict=True)))


def restored(text: str, leaves: Sequence[Leaf]) -> Tree | None:
    """Restore the tree of a linearized form; None if it is not well-formed.

    A form is well-formed if its brackets are balanced, each contains a word and is closed by a
    bracket with the same label, and it has as many words as the sentence.

    Args:
        text: symbols with spaces between them: brackets, and a word, XX or XX/TAG for each word.
        leaves: the words of the sentence, which replace XX and XX/TAG.
    """
    stack: list[tuple[str, list[Node]]] = [(ROOT, [])]
    next_leaves = iter(leaves)
    for symbol in text.split():
        if symbol[0] == "(":
            if len(stack) > MAX_DEPTH:
                return None
            stack.append((symbol[1:], []))
        elif symbol[0] == ")":
            label, children = stack.pop()
            if not stack or not children or label != symbol[1:]:
                return None
            stack[-1][1].append(Tree(label, tuple(children)))
        else:
            leaf = next(next_leaves, None)
            if leaf is None or not (is_word_symbol(symbol) or symbol == leaf.word):
                return None
            stack[-1][1].append(leaf)
    if len(stack) > 1 or not stack[0][1] or next(next_leaves, None) is not None:
        return None
    return Tree(ROOT, tuple(stack[0][1]))
