"""Bracketed files and linearised trees: what is read, restored and refused."""

import gzip
import random
import re
from collections import Counter

import pytest

from ablate.config.parsing_data import ParsingData, replace_leaves
from ablate.data import toy
from ablate.data.locations import Files
from ablate.data.prepare import prepare
from ablate.data.resolve_sources import resolve_sources
from ablate.data.sources import Treebank
from ablate.data.trees import (
    MAX_DEPTH,
    Leaf,
    Tree,
    leaves_of,
    linearized,
    normalized,
    parse_brackets,
    restored,
)
from ablate.errors import DataError
from tests.data.random_trees import random_tree, without_tags

# A tree of the WSJ's form: an unlabeled root, function tags, traces, and several lines.
WSJ = """\
( (S
    (NP-SBJ-1 (NNP Ms.) (NNP Haag) )
    (VP (VBZ plays)
      (NP=2 (NNP Elianti) )
      (S (NP-SBJ (-NONE- *-1) ) (PRT|ADVP (RP up) ) ) )
    (-LRB- -LRB-) (. .) ) )
"""
LINEAR = "(S (NP NNP NNP )NP (VP VBZ (NP NNP )NP (S (PRT|ADVP RP )PRT|ADVP )S )VP -LRB- . )S"
SENTENCE = "Ms. Haag plays Elianti up -LRB- ."


def read(text):
    """The trees of a text, each with its line."""
    return list(parse_brackets(iter(text.splitlines()), "a.ptb"))


def records(path):
    return [record.texts for record in Treebank(Files((str(path),))).documents()]


def test_a_tree_of_the_treebank_loses_its_root_function_tags_and_traces():
    ((line, tree),) = read(WSJ)
    assert line == 1
    whole = normalized(tree)
    assert " ".join(leaf.word for leaf in whole.leaves()) == SENTENCE
    assert linearized(whole) == LINEAR
    assert (
        replace_leaves(LINEAR, SENTENCE)
        == re.sub(r"(?<= )[^() ]+", "XX", LINEAR)
        == without_tags(LINEAR)
    )
    assert replace_leaves(LINEAR, SENTENCE, "tags").startswith(
        "(S (NP XX/NNP XX/NNP )NP (VP XX/VBZ (NP XX/NNP )NP "
    )
    assert replace_leaves(LINEAR, SENTENCE, "words").startswith(
        "(S (NP Ms. Haag )NP (VP plays (NP Elianti )NP "
    )
    assert str(whole) == (
        "(TOP (S (NP (NNP Ms.) (NNP Haag)) (VP (VBZ plays) (NP (NNP Elianti)) (S (PRT|ADVP (RP "
        "up)))) "
        "(-LRB- -LRB-) (. .)))"
    )


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1"])
def test_every_name_of_the_root_is_the_same(root):
    ((_, tree),) = read(f"({root} (S (NN a)) (. .))")
    assert linearized(normalized(tree)) == "(S NN )S ."


@pytest.mark.parametrize(
    ("text", "linear"), [("(S (NN a))", "(S NN )S"), ("(NN a)", "NN"), ("(ROOT (NN a))", "NN")]
)
def test_a_tree_needs_no_root_and_no_constituent(text, linear):
    ((_, tree),) = read(text)
    assert linearized(normalized(tree)) == linear


def test_trees_have_their_lines_and_may_share_one():
    assert [line for line, _ in read("(S (NN a))\n\n(S (NN b)) (S\n (NN c))\n")] == [1, 3, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a)))", 'a.ptb:1: ")" is outside of brackets'),
        ("(S (NN a))\nword", 'a.ptb:2: "word" is outside of brackets'),
        ("(S (NN a)\n(S (NN b))\n", 'a.ptb:1: "(S" is never closed; line 2 begins with another bracket'),
        ("(S (NN a))\n(S (NP\n  (NN b))", 'a.ptb:2: "(S" is never closed'),
        *(
            (text, f'a.ptb:{line}: "({label}" holds neither one word nor constituents alone')
            for text, line, label in (
                ("(S (NN a b))", 1, "NN"),
                ("(S (NN a (DT b)))", 1, "NN"),
                ("(S (NN a) b)", 1, "S"),
                ("(S\n(NP))", 2, "NP"),
                ("()", 1, ""),
            )
        ),
        ("(S " * (MAX_DEPTH + 1), f"a.ptb:1: brackets are more than {MAX_DEPTH} deep"),
    ],
)  # fmt: skip
def test_faults_name_file_and_line(text, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read(text)


def test_a_linearised_tree_is_restored():
    draw = random.Random(1)
    for _ in range(2000):
        tree = random_tree(draw)
        leaves = list(tree.leaves())
        sentence = " ".join(leaf.word for leaf in leaves)
        linear = linearized(tree)
        assert leaves_of(linear, sentence) == leaves
        assert restored(without_tags(linear), leaves) == tree
        for leaves_as in ("tags", "words"):
            assert restored(replace_leaves(linear, sentence, leaves_as), leaves) == tree
        (((_, read_again)),) = read(str(tree))
        assert normalized(read_again) == tree


TWO = [Leaf("DT", "a"), Leaf("NN", "b")]


@pytest.mark.parametrize(
    "text",
    [
        "", "XX", "XX XX XX", "(NP XX XX", "XX XX )NP", "(NP XX XX )VP", "(NP XX (VP XX )NP )VP",
        "(NP XX XX (VP )VP )NP", "(NP XX the )NP", "(NP DT NN )NP", ")NP XX XX (NP", "(NP XX XX )",
        " ".join(["(X"] * 300 + ["XX XX"] + [")X"] * 300),
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_not_restored(text):
    assert restored(text, TWO) is None


@pytest.mark.parametrize(
    "text", ["XX XX", "(NP XX XX )NP", "(NP XX )NP XX", "(NP (NP XX )NP XX )NP"]
)
def test_every_well_formed_sequence_is_restored(text):
    assert without_tags(linearized(restored(text, TWO))) == text


def test_a_word_that_is_a_bracket_is_escaped():
    assert str(Tree("TOP", (Leaf("XX", "("), Leaf("XX", ":)")))) == "(TOP (XX -LRB-) (XX :-RRB-))"


def test_trees_without_words_are_counted(tmp_path):
    (tmp_path / "a.ptb").write_text("(S (-NONE- *))\n(S (NN a))\n")
    source = Treebank(Files((str(tmp_path / "a.ptb"),)))
    (record,) = source.documents()
    assert record.texts == ("a", "(S NN )S")
    assert source.repaired == Counter({"tree without words": 1})
    assert record.where(0) == f"{tmp_path}/a.ptb:2"


def test_a_file_may_be_compressed_and_the_hash_is_that_of_the_trees(tmp_path):
    (tmp_path / "a.mrg").write_text(WSJ)
    (tmp_path / "b.mrg.gz").write_bytes(gzip.compress(" ".join(WSJ.split()).encode()))
    plain, packed = (Treebank(Files((str(tmp_path / name),))) for name in ("a.mrg", "b.mrg.gz"))
    for source in (plain, packed):
        assert [record.texts for record in source.documents()] == [(SENTENCE, LINEAR)]
    assert plain.content() == packed.content()


def write_sections(folder, numbers):
    for number in numbers:
        section = folder / f"{number:02d}"
        section.mkdir()
        (section / f"wsj_{number:02d}00.mrg").write_text(f"( (S (CD {number}) (NN first)) )\n")
        (section / f"wsj_{number:02d}01.mrg").write_text(f"( (S (CD {number}) (NN second)) )\n")
        (section / "readme").write_text("not a tree")


def test_the_wsj_is_read_by_its_sections(tmp_path):
    write_sections(tmp_path, range(25))
    sources = resolve_sources(
        ParsingData.resolve({"corpus": "wsj"}), tmp_path, tmp_path / "corpora"
    )
    sentences = {
        split: [record.texts[0] for record in source.documents()]
        for split, source in sources.items()
    }
    assert sentences["dev"] == ["22 first", "22 second"]
    assert sentences["test"] == ["23 first", "23 second"]
    assert len(sentences["train"]) == 40
    assert sentences["train"][0] == "2 first"
    assert sentences["train"][-1] == "21 second"


def test_a_missing_section_is_one_line(tmp_path):
    write_sections(tmp_path, (22, 23))
    with pytest.raises(
        DataError,
        match=r"02 not found; set data.folder to the folder of the WSJ's sections, which are",
    ):
        resolve_sources(ParsingData.resolve({"corpus": "wsj"}), tmp_path, tmp_path / "corpora")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "data needs a corpus: toy, wsj or files"),
        ({"corpus": "wjs"}, 'unknown corpus "wjs"; did you mean "wsj"'),
        ({"corpus": "wsj", "train": "21-02"}, 'sections "21-02" are not in ascending order'),
        ({"corpus": "toy", "dev": "x"}, '"dev" has no effect on the toy corpus'),
        ({"corpus": "hf:a/b", "train": "x", "dev": "y", "test": "z"}, "treebanks are read from files"),
        ({"corpus": "files", "train": "x", "dev": "y"}, "test"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ParsingData.resolve(settings)


def prepared(folder, **splits):
    """A corpus of files whose content is given by split."""
    for split, text in splits.items():
        (folder / f"{split}.ptb").write_text(text)
    settings = {
        "corpus": "files",
        "vocab_size": 40,
        **{split: f"{split}.ptb" for split in ("train", "dev", "test")},
    }
    return prepare(ParsingData.resolve(settings), folder, folder / "corpora")


GOOD = {
    "train": f"{WSJ}(S (NP (NN Haag)) (VP (VBZ plays)))\n",
    "dev": "(S (NN play))\n",
    "test": "(NP (NN plays))\n",
}


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": ""}, "train.ptb: contains no records"),
        ({"dev": ""}, "dev.ptb: contains no records"),
        ({"dev": "(S (-NONE- *))"}, "dev.ptb: contains no records"),
        ({"test": "(S (NN a)"}, 'test.ptb:1: "(S" is never closed'),
        ({"dev": f"(S (NN a))\n(S {'(NN a) ' * 600})"}, "dev.ptb:2: is longer than data.max_length=500 tokens"),
        ({"train": "(S (NN a\0))"}, "train.ptb:1: contains a NUL byte"),
    ],
)  # fmt: skip
def test_splits_that_cannot_be_used_are_one_line(tmp_path, splits, message):
    with pytest.raises(DataError, match=re.escape(message)):
        prepared(tmp_path, **{**GOOD, **splits})


def test_each_symbol_is_a_token_and_words_are_learned_apart(tmp_path):
    corpus = prepared(tmp_path, **GOOD)
    assert corpus.manifest.all_warnings == []  # a space before the full stop is right here
    pieces = corpus.tokenizer.pieces(list(range(corpus.tokenizer.vocab_size)))
    symbols = {"(S", ")S", "(NP", ")NP", "(VP", ")VP", "(PRT|ADVP", ")PRT|ADVP", "XX"}
    assert {piece[1:] for piece in pieces[4:13]} == symbols
    assert corpus.tokenizer.kind == "bpe"
    train = corpus.split("train")
    (tree,) = corpus.tokenizer.decode([train["tree"][0].tolist()])
    assert tree == without_tags(LINEAR)
    assert len(train["tree"][0]) == len(LINEAR.split())
    assert corpus.tokenizer.decode([train["sentence"][0].tolist()]) == [SENTENCE]
    assert corpus.text("dev", "tree") == ["(S NN )S"]  # with the tags, which scores need


def test_a_vocabulary_without_space_for_the_symbols_is_refused(tmp_path):
    (tmp_path / "a.ptb").write_text(GOOD["train"])
    settings = {
        "corpus": "files", "train": "a.ptb", "dev": "a.ptb", "test": "a.ptb", "vocab_size": 12,
    }  # fmt: skip
    with pytest.raises(DataError, match="12 is too small"):
        prepare(ParsingData.resolve(settings), tmp_path, tmp_path / "corpora")


def test_toy_trees_are_well_formed_and_have_the_words_of_their_sentences():
    trees = toy.trees()
    assert {split: len(pairs) for split, pairs in trees.items()} == toy.SPLITS
    for sentence, linear in trees["train"][:500]:
        tree = restored(without_tags(linear), leaves_of(linear, sentence))
        (sentence_node,) = tree.children
        assert sentence_node.label == "S"
        subject, *rest = sentence_node.children
        assert (subject.label, rest[-1].label) == ("NP", "VP")
        verb, object = rest[-1].children
        assert verb.tag == "VB"
        assert object.label == "NP"
        nouns = [leaf.word for leaf in tree.leaves() if leaf.tag == "NN"]
        assert all(word not in ("the", "a", "these", "near", "behind", "under") for word in nouns)
