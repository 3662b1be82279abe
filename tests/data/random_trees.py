"""Random constituency trees, and trees that differ from one in a few places as a parser's output
does.
"""

from ablate.data.trees import Leaf, Tree

LABELS = ("S", "NP", "VP", "PP", "SBAR", "ADVP", "PRT", "TOP", "X")
TAGS = ("NN", "DT", "VB", "IN", ",", ".", ":", "``", "''", "-LRB-", "POS")


def random_tree(draw, words=12):
    """A tree of up to so many words, with chains of unary constituents, punctuation and several
    tops.
    """
    leaves = [Leaf(draw.choice(TAGS), f"w{i}") for i in range(draw.randint(1, words))]
    return Tree("TOP", tuple(_nodes(draw, leaves, depth=5)))


def _nodes(draw, leaves, depth):
    """Divide leaves into constituents and single words."""
    if depth == 0:
        return leaves
    cuts = sorted(draw.sample(range(1, len(leaves)), k=min(len(leaves) - 1, draw.randint(0, 3))))
    parts = [leaves[start:end] for start, end in zip([0, *cuts], [*cuts, len(leaves)], strict=True)]
    nodes = []
    for part in parts:
        if draw.random() < 0.35:
            nodes += part
        else:
            nodes.append(Tree(draw.choice(LABELS), tuple(_nodes(draw, part, depth - 1))))
    return nodes


def perturbed(draw, tree, rate=0.2):
    """The tree with some constituents renamed, dissolved into the one above, or doubled."""
    return Tree(tree.label, tuple(_perturbed(draw, tree.children, rate)))


def _perturbed(draw, nodes, rate):
    for node in nodes:
        if isinstance(node, Leaf):
            yield node
            continue
        children = tuple(_perturbed(draw, node.children, rate))
        chance = draw.random()
        if chance < rate / 3:
            yield from children
        elif chance < 2 * rate / 3:
            yield Tree(draw.choice(LABELS), children)
        elif chance < rate:
            yield Tree(draw.choice(LABELS), (Tree(node.label, children),))
        else:
            yield Tree(node.label, children)


def without_tags(linear):
    """A linearised tree with XX for each tag."""
    return " ".join(part if part[0] in "()" else "XX" for part in linear.split())
