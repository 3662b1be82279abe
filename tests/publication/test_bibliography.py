"""References: every variant has its paper, every use is a setting or a word, and BibTeX reads them."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.parts.variant import VariantName
from ablate.publication.bibliography import (
    bibtex,
    cite,
    cite_corpus,
    cite_setting,
    cited,
    references,
)
from ablate.publication.methods import environment
from ablate.tasks import TASKS

# Variants without a paper: the original's, plain sums of known ones, and the absence of a part.
WITHOUT_PAPER = {
    "optimizer=sgd", "schedule=inverse_sqrt", "schedule=constant", "schedule=linear", "attention=full", "mixer=attention",
    "activation=relu", "feed_forward=network", "norm_position=post", "positional_encoding=sinusoidal",
    "residual_scale=depth", "residual_scale=scalar", "output_initialization=zero", "output_initialization=same",
    "architecture=encoder-decoder", "architecture=decoder-only", "parametrization=standard",
    "expert_weights=softmax", "expert_weights=softmax_of_chosen", "expert_balance_by=loss", "length_penalty=gnmt",
    "attention_bias=inputs", "attention_bias=output", "attention_scale=1/sqrt(d_k)", "embedding_scale=sqrt(d_model)",
    "output_transform=without_bias", "length_penalty=length", "decay_schedule=constant", "decay_schedule=linear", "decay_schedule=cosine",
}  # fmt: skip


def values(field):
    """The names of a field's variants; empty for a number."""
    for item in field.metadata:
        if isinstance(item, VariantName):
            return item.names
    return tuple(value for value in get_args(field.annotation) if isinstance(value, str))


def test_every_variant_has_a_paper():
    lacking = set()
    for name, field in RowConfig.model_fields.items():
        for value in values(field):
            if value != "none" and not cite_setting(name, value):
                lacking.add(f"{name}={value}")
    precisions = {f"precision={value}" for value in ("bf16", "tf32", "fp32")}
    assert lacking - precisions == WITHOUT_PAPER


def test_every_use_is_a_value_of_a_field_a_metric_or_a_word_of_the_methods():
    text = environment().loader.get_source(environment(), "methods.md")[0]
    words = set(re.findall(r"cite\(\"([\w ]+)\"\)", text))
    metrics = {metric for task in TASKS.values() for metric in task.metrics}
    tokenizers = {f"tokenizer={name}" for name in ("bpe", "unigram")}
    corpora = {f"corpus={name}" for task in TASKS.values() for name in task.data_config.corpora()}
    for key, paper in references().items():
        for use in paper.uses:
            name, _, value = use.partition("=")
            if name in RowConfig.model_fields:
                assert not value or value in values(RowConfig.model_fields[name]), (key, use)
            else:
                assert use in words | metrics | tokenizers | corpora, (key, use)
    used = set().union(*(paper.uses for paper in references().values()))
    assert words <= used
    assert issubclass(TASKS["translation"].data_config, CorpusConfig)
    for use in tokenizers:
        TASKS["translation"].data_config.resolve(
            {"corpus": "toy", "vocab_size": 200, "tokenizer": use.partition("=")[2]}
        )


def test_every_corpus_that_is_read_by_its_name_has_a_paper():
    known = {}
    for task in TASKS.values():
        known |= task.data_config.catalogue
    lacking = {name for name, corpus in known.items() if not cite(f"corpus={name}")}
    assert lacking == {name for name, corpus in known.items() if corpus.is_generated} == {"toy"}


@pytest.mark.parametrize(
    ("corpus", "citation"),
    [
        ("multi30k", " [@elliott2016multi30k]"),
        ("hf:bentrevett/multi30k@main", " [@elliott2016multi30k]"),
        ("hf:somebody/multi30k", ""),
        ("toy", ""),
    ],
)
def test_a_data_set_of_the_hub_is_cited_as_the_corpus_that_it_is(corpus, citation):
    settings = {"corpus": corpus, "direction": "en-toy" if corpus == "toy" else "en-de"}
    assert cite_corpus(TASKS["translation"].data_config.resolve(settings)) == citation


def test_the_entry_of_ablate_has_the_facts_of_its_citation_file():
    facts = yaml.safe_load(Path("CITATION.cff").read_text(encoding="utf-8"))
    (author,) = facts["authors"]
    entry = references()["ablate2026"].fields
    assert entry["author"] == f"{{{author['name']}}}"
    assert entry["title"] == facts["title"]
    assert entry["year"] == str(facts["date-released"].year)


def test_a_setting_cites_its_own_papers_and_those_of_its_field():
    assert cite_setting("norm", "rmsnorm") == " [@zhang2019root]"
    assert cite_setting("qk_norm", "width") == " [@henry2020query; @olmo2024olmo2]"
    assert cite_setting("n_kv_heads", 1) == " [@shazeer2019fast; @ainslie2023gqa]"
    assert cite_setting("train_steps", 100) == ""
    assert cite("bleu", "ter") == " [@papineni2002bleu; @post2018call; @snover2006study]"


def test_cited_papers_are_in_the_order_of_the_file_each_once():
    texts = [
        "A [@zhang2019root; @vaswani2017attention].",
        "B [@vaswani2017attention]. [@x] is none",
    ]
    with pytest.raises(KeyError, match="x"):
        cited(texts)
    keys = [paper.key for paper in cited(texts[:1] * 2)]
    assert keys == ["vaswani2017attention", "zhang2019root"]


def test_every_entry_names_who_what_when_and_where():
    for paper in references().values():
        assert {"author", "title", "year"} <= set(paper.fields)
        assert re.fullmatch(r"(19|20)\d\d", paper.fields["year"])
        first = re.match(r"\{?([A-Za-z-]+)", paper.fields["author"])[1].lower().replace("-", "")
        assert paper.key.startswith(first[:4]) or paper.fields["year"] in paper.key
        if "eprint" in paper.fields:
            assert re.fullmatch(r"\d{4}\.\d{4,5}", paper.fields["eprint"])
        text = paper.bibtex()
        assert text.count("{") == text.count("}")
        assert not re.search(r"(?<!\\)[&%#]", text)


def test_papers_of_conferences_have_whole_titles_of_proceedings():
    known = re.compile(
        "(Proceedings of the |Advances in Neural |Findings of the .* 20|International Conference on Learning)"
    )
    for key, paper in references().items():
        fields = paper.fields
        if "booktitle" in fields:
            assert known.match(fields["booktitle"]), key
        if "pages" in fields:
            first, _, last = fields["pages"].partition("--")
            assert not last or int(first) < int(last), key
        if "aclanthology" in fields.get("url", ""):
            assert re.fullmatch(r"https://aclanthology\.org/[\w.-]+/", fields["url"]), key
            assert "pages" in fields, key
        if "doi" in fields:
            assert re.fullmatch(r"10\.\d{4,5}/\S+", fields["doi"]), key
    bleu = references()["papineni2002bleu"].bibtex()
    assert "Proceedings of the 40th Annual Meeting of the Association for Computational" in bleu
    assert "  pages = {311--318},\n" in bleu
    assert "  url = {https://aclanthology.org/P02-1040/},\n" in bleu


def test_the_entry_of_ablate_has_the_versions_that_trained_the_runs():
    papers = [references()["ablate2026"], references()["post2018call"]]
    text = bibtex(papers, {"ablate2026": {"0.3", "0.2"}})
    assert text.count("  version = {0.2 and 0.3},\n  note = {Version 0.2 and 0.3},") == 1
    assert "ersion" not in bibtex(papers, {"ablate2026": set()}).replace("/", "")


@pytest.mark.skipif(shutil.which("bibtex") is None, reason="bibtex is not installed")
def test_bibtex_reads_every_entry_without_a_warning(tmp_path):
    (tmp_path / "references.bib").write_text(bibtex(references().values(), {}))
    (tmp_path / "all.aux").write_text(
        "\\citation{*}\n\\bibstyle{plain}\n\\bibdata{references}\n", encoding="utf-8"
    )
    done = subprocess.run(["bibtex", "all"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Warning" not in done.stdout
    assert (tmp_path / "all.bbl").read_text().count("\\bibitem") == len(references())
