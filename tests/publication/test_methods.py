"""Methods, compute, limitations and checklists of a study with known results."""

import re
import shutil
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from rocrate.rocrate import ROCrate

from ablate.publication.archive import archive_of
from ablate.publication.bibliography import references
from ablate.publication.compute import compute_of
from ablate.publication.crate import METADATA, crate
from ablate.publication.methods import methods
from ablate.publication.paper import paper_files
from ablate.store.records import Provenance, Result
from ablate.table.columns.layouts import terminal_layout
from ablate.table.latex import escaped
from tests.cli.inside import inside
from tests.records import CORPUS, a_manifest, change
from tests.report.fakes import SMALL, STUDIES
from tests.table.test_latex import compiled

PARTS = SMALL.replace("decoding:", "norm: {each: {norm: [rmsnorm]}}\n  decoding:")


def texts(results):
    """The sections of the methods by title, each in one line."""
    sections = methods(results.outcome(), results.results)
    return {title: " ".join(text.split()) for title, text in sections.items()}


def test_the_methods_state_the_study_s_settings_seeds_and_metrics(fake):
    results = fake(PARTS.replace("h: 4,", "h: 4, norm_position: pre, learning_rate: 0.002,"))
    found = texts(results.all_done())
    assert "N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16" in found["Models"]
    assert "differs from the original in norm_position=pre [@xiong2020layer]." in found["Models"]
    assert "The table compares base with 5 rows, each of which differs" in found["Models"]
    assert "norm=rmsnorm [@zhang2019root]" in found["Models"]
    assert found["Data"].startswith(
        "The task is translation (en-toy). The corpus is toy, which ablate generates. "
    )
    assert "The vocabulary has 200 entries that both languages share." in found["Data"]
    assert "The text is prepared with tokenizer=bpe [" in found["Data"]
    assert "100 steps of 25,000 tokens with optimizer=adam [@kingma2015adam]" in found["Training"]
    assert "The peak learning rate is 0.002, after 4,000 steps of warm-up" in found["Training"]
    assert "No setting was tuned in this study" in found["Training"]
    assert "BLEU [@papineni2002bleu; @post2018call] on test (nrefs:1|" in found["Evaluation"]
    assert "beam=4 and a length penalty [@wu2016google] of alpha=0.6" in found["Evaluation"]
    assert found["Statistics"].startswith("Each row is trained with 3 seeds. ")
    assert "Holm's method [@holm1979simple] for 5 rows" in found["Statistics"]


def test_further_seeds_looks_margins_and_tuning_are_stated(fake):
    further = texts(fake(SMALL.replace("[1, 2, 3]", "{rows: 3, base: 5}")).all_done())
    assert "with 3 seeds, and base with 5." in further["Statistics"]
    looks = texts(fake(SMALL.replace("[1, 2, 3]", "{looks: [2, 3]}")).all_done())
    assert "Verdicts are given after 2 and 3 seeds. The level is divided" in looks["Statistics"]
    assert "the uniform error-spending function [@lan1983discrete]." in looks["Statistics"]
    margin = fake(SMALL + "margin: {bleu: 0.5}\n").all_done()
    assert (
        "smaller than the margin of 0.5 BLEU [@schuirmann1987comparison]"
        in texts(margin)["Statistics"]
    )
    tune = "tune: {grid: {learning_rate: [0.001, 0.002]}, seeds: [101]}\n"
    tuned = fake(SMALL + tune).outcome()
    assert (
        "Tuning chose learning_rate (0.001, 0.002) for every row by itself, by the smallest dev "
        "loss in trainings with seed 101 and 100 % of the steps."
    ) in methods(tuned, fake().results)["Training"]


def test_limitations_name_the_rows_that_are_trained_without_tuning(fake):
    tune = "tune: {grid: {learning_rate: [0.001, 0.002]}, seeds: [101]}\n"
    partly = texts(fake(SMALL + "  M: {set: {norm: rmsnorm}, tune: false}\n" + tune))
    sentence = (
        "1 row without tuning (M norm=rmsnorm) has the learning rate and other settings of base"
    )
    assert sentence in partly["Limitations"]
    assert "without tuning" not in texts(fake(SMALL + tune))["Limitations"]


@pytest.mark.parametrize("judge", ["ppl", "bleu"])
def test_rows_that_are_tuned_and_judged_on_dev_are_a_limitation(fake, judge):
    tune = f"tune: {{grid: {{learning_rate: [0.001, 0.002]}}, seeds: [101]}}\njudge: [{judge}]\n"
    found = texts(fake(SMALL + "  M: {set: {norm: rmsnorm}, tune: false}\n" + tune))
    remark = (
        "PPL is measured on dev, by whose loss the settings of tuned rows were chosen, so it is "
        "better than on new text. Tuned rows have an advantage in PPL over M norm=rmsnorm."
    )
    assert (remark in found["Limitations"]) is (judge == "ppl")
    assert (
        "The test split was not used for these choices; perplexity is measured on the split that "
        "chose them."
    ) in found["Training"]
    untuned = texts(fake(SMALL + f"judge: [{judge}]\n"))
    assert "measured on dev, by" not in str(untuned)
    alike = texts(fake(SMALL + tune))["Limitations"]
    assert ("PPL is measured on dev" in alike) is (judge == "ppl")
    assert "advantage" not in alike


def test_a_matched_field_and_a_decoding_chosen_on_dev_are_settings_that_the_tool_chose(fake):
    decoding = SMALL + "tune: {decoding: {alpha: [0.6, 1.0]}}\n"
    matched = SMALL + "  M: {set: {norm: rmsnorm}, match: {params: d_ff, within: 0.1}}\n"
    for text in (decoding, matched):
        assert "No setting was tuned" not in texts(fake(text))["Training"]
    models = texts(fake(matched))["Models"]
    assert "matched in M norm=rmsnorm, by the field that brings the row's parameters" in models
    evaluation = texts(fake(decoding))["Evaluation"]
    assert "The decoding was chosen by base's scores on dev" in evaluation


def test_classes_of_the_authors_are_named_with_their_file(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("class PowerNorm: pass\n")
    own = texts(fake(PARTS.replace("[rmsnorm]", '[rmsnorm, "mine:PowerNorm"]')))["Models"]
    assert "The code of mine:PowerNorm (mine.py) is the authors' own" in own
    assert "authors' own" not in texts(fake(PARTS))["Models"]


def test_the_settings_of_labels_in_words_are_stated_in_methods_and_paper(fake):
    words = "  N: {set: {residual: false, norm: rmsnorm}, label: no_residual & more}\n"
    parts = "  path: {add-one-in: {dropout: 0.3, modern: {norm: rmsnorm}}}\n"
    results = fake(SMALL + words + parts).all_done()
    named = (
        "no_residual & more (norm=rmsnorm, residual=false)",
        "modern of path (norm=rmsnorm)",
    )
    models = texts(results)["Models"]
    paper = paper_files(results.outcome(), results.results)["paper.tex"].decode()
    for label in named:
        assert label in models
        assert escaped(label) in paper
    assert "Labels in words" not in texts(fake())["Models"]


@pytest.mark.parametrize(
    ("row", "is_derived"),
    [
        ("{set: {h: 2}}", True),  # d_k = d_v = 32
        ("{set: {d_model: 32}}", True),
        ("{set: {h: 2, d_k: 16, d_v: 16}}", False),
        ("{set: {h: 2, d_k: 16}}", True),  # d_v = 32
        ("{set: {h: 2}, label: two heads}", False),  # its line has d_k and d_v
        ("{set: {dropout: 0.3}}", False),
    ],
)
def test_sizes_of_heads_that_follow_from_a_change_are_stated(fake, row, is_derived):
    head = SMALL.split("rows:")[0]
    results = fake(f"{head}rows:\n  R: {row}\n").all_done()
    files = paper_files(results.outcome(), results.results)
    terminal = terminal_layout(results.table(), "{}".format, against_paper=False)
    for text in (
        " ".join(terminal.legend),
        " ".join(texts(results)["Models"].split()),
        files["table.tex"].decode().replace("\\_", "_"),
        files["paper.tex"].decode().replace("\\_", "_"),
    ):
        assert ("Rows that change h or d_model have d_" in text) == is_derived
    if is_derived:
        sizes = "d_v" if "d_k" in row else "d_k = d_v"
        assert f"have {sizes} = d_model / h, unless" in " ".join(terminal.legend)


def test_limitations_state_what_no_model_has_learned_without_advice(fake):
    results = fake().all_done()
    for label in ("base", "A h=1", "A h=2", "D dropout=0.3", "decoding beam=1"):
        for seed in (1, 2, 3):
            results.done(label, seed, 5.0, 0.0)
    limits = texts(results)["Limitations"]
    assert limits.startswith("By BLEU, no row has learned anything: all 15 scores are as low as ")
    assert "train for more steps" not in limits
    assert "learned anything" not in texts(fake().all_done())["Limitations"]


def test_perplexity_is_defined_and_alpha_belongs_to_a_beam(fake):
    found = texts(fake().all_done())["Evaluation"]
    assert "and perplexity (PPL) on dev (" in found
    greedy = texts(fake(SMALL.replace("h: 4,", "h: 4, beam: 1,").split("  decoding")[0]).all_done())
    assert "decoded with beam=1." in greedy["Evaluation"]
    assert "alpha" not in greedy["Evaluation"]


def test_splits_are_named_if_their_names_say_more(fake):
    assert "training, development" not in texts(fake())["Data"]
    named = fake(SMALL.replace("toy,", "multi30k, direction: en-de,"))
    splits = "with train, val and test_2016_flickr as training, development and test sets."
    assert f"The corpus is multi30k [@elliott2016multi30k], {splits}" in texts(named)["Data"]


def test_the_conclusion_of_the_paper_has_minus_signs(fake):
    results = fake().all_done()
    for seed in (1, 2, 3):
        results.done("A h=1", seed, 8.0 + seed / 100, 5.0 + seed / 100)
    paper = paper_files(results.outcome(), results.results)["paper.tex"].decode()
    conclusion = paper.split("\\paragraph{Results.}")[1].split("\\paragraph")[0]
    assert "A h=1 ($-$" in conclusion
    assert " (-" not in conclusion


def test_tokens_and_epochs_of_a_training_are_those_of_its_records(fake):
    results = fake().all_done()
    assert "target tokens" not in texts(results)["Training"]
    for seed, tokens in ((1, 100), (2, 200), (3, 600)):
        change(Result, results.folder("base", seed).result, tokens=tokens)
    sentence = "A training of base reads 300 target tokens (mean over seeds)."
    assert sentence in texts(results)["Training"]
    counts = ("source_tokens", "longer_tokens", "source_squares", "products", "target_squares")
    lengths = {"pairs": 10, "target_tokens": 120, **dict.fromkeys(counts, 7)}
    manifest = a_manifest(lengths=lengths)
    manifest.write(results.results.corpora / CORPUS / "corpus.json")
    sentence = (
        "A training of base reads 300 target tokens, which is 2.5 times the training set "
        "(mean over seeds)."
    )
    assert sentence in texts(results)["Training"]


def test_own_files_are_named_by_their_folder_without_its_place(fake):
    text = SMALL.replace(
        "toy, vocab_size: 200",
        "files, folder: /data/place/europarl, vocabulary: separate, direction: a-b, train: t, dev: d, test: e",
    ).replace("h: 4,", "h: 4, tied_embeddings: decoder,")
    found = texts(fake(text))["Data"]
    assert "The text is read from files of the corpus europarl, with t, d and e as" in found
    assert "entries for each of the two languages." in found
    assert "place" not in found


def test_an_unfinished_study_is_said_to_be_unfinished(fake):
    results = fake().all_done()
    assert "Unfinished" not in str(texts(results))
    results.folder("A h=1", 2).result.unlink()
    found = texts(results)
    sentence = "Unfinished: 1 of 12 runs has no scores yet, so every verdict is provisional."
    assert found["Statistics"].startswith(f"{sentence} Each row is trained with 3 seeds. ")
    assert "The study has 11 trainings so far, which took" in found["Compute"]
    files = paper_files(results.outcome(), results.results)
    assert b"Ablation study small (unfinished): each row" in files["table.tex"]


def test_the_software_and_the_precision_are_those_of_the_records(fake):
    results = fake().all_done()
    for seed, torch in ((1, "2.11.0"), (2, "2.12.0")):
        made = {"ablate": {"version": "0.9"}, "packages": {"torch": torch}, "precision": "bf16"}
        change(Provenance, results.folder("A h=1", seed).provenance, **made)
    text = texts(results)["Compute"]
    (software,) = re.findall(r"The software is (.*?); the precision", text)
    assert software == (
        "ablate 0.9 [@ablate2026] with PyTorch 2.11.0 and 2.12.0 [@paszke2019pytorch; "
        "@ansel2024pytorch]"
    )
    assert re.search(r"; the precision of the trainings is (bf16|bf16 and fp32)\.", text)


def test_plan_and_methods_count_operations_in_the_same_unit(fake):
    results = fake().all_done()
    planned = inside("plan", results.study.path, "--results", results.results.root).out
    (unit,) = re.findall(r"\d (\w+) in all", planned)
    assert re.search(
        r"cost [\d.]+ (\w)FLOP \(floating-point operations\)", texts(results)["Compute"]
    )
    assert unit.endswith("FLOP")


def test_every_setting_that_differs_from_the_original_is_named(fake):
    settings = {
        "norm": "rmsnorm", "activation": "swiglu", "optimizer": "adamw", "weight_decay": 0.1, "adam_beta2": 0.95,
        "tied_embeddings": "none", "gradient_clipping": 1.0, "schedule": "cosine",
    }  # fmt: skip
    words = ", ".join(f"{name}: {value}" for name, value in settings.items())
    found = texts(
        fake(
            SMALL.replace("h: 4,", f"h: 4, warmup_steps: 10, learning_rate: 0.001, {words},")
        ).all_done()
    )
    for name, value in settings.items():
        assert f"{name}={value}" in found["Models"] + found["Training"]


@pytest.mark.parametrize(
    ("device", "processes", "threads", "words"),
    [("cpu", 1, 2, "CPU core"), ("NVIDIA H100", 1, 4, "GPU"), ("NVIDIA H100", 2, 4, "GPU")],
)
def test_hours_are_those_of_every_training_times_its_devices(
    fake, device, processes, threads, words
):
    results = fake(seeds="1").all_done()  # base, A h=1, A h=2, D; beam=1 shares base's run
    for run in results.planned:
        folder = results.results.run(run.id)
        fields = {"device": device, "processes": processes, "threads": threads}
        change(Provenance, folder.provenance, **fields)
    cost = compute_of(results.outcome(), results.results)
    devices = processes * (threads if device == "cpu" else 1)
    assert (cost.trainings, cost.tuning, cost.failed) == (4, 0, 0)
    assert len(cost.machines) == 1
    assert device in min(cost.machines)
    assert cost.hours == pytest.approx({words: 4 * 60.0 / 3600 * devices})


def test_trainings_count_before_the_decoding_of_their_rows_is_chosen(fake):
    fake(seeds="1").all_done()
    tuned = fake(SMALL + "tune: {decoding: {alpha: [0.0, 0.6]}}\n", seeds="1")
    assert [row.awaits_decoding for row in tuned.planned.rows] == [True] * 5
    cost = compute_of(tuned.outcome(), tuned.results)
    assert (cost.trainings, cost.tuning) == (4, 0)
    with zipfile.ZipFile(BytesIO(archive_of(tuned.planned, tuned.results))) as archive:
        results = [name for name in archive.namelist() if name.endswith("/result.json")]
    assert len(results) == 4


def test_failures_and_divergence_are_counted_and_lost_time_is_said(fake):
    results = fake().all_done()
    for seed, end in ((1, results.failed), (2, results.failed)):
        results.folder("A h=1", seed).result.unlink()
        end("A h=1", seed, "RuntimeError")
    results.folder("A h=1", 2).progress.unlink()
    results.folder("D dropout=0.3", 1).result.unlink()
    results.diverged("D dropout=0.3", 1, 50, "the loss exploded")
    text = texts(results)["Compute"]
    assert "The study has 10 trainings so far, which took" in text
    assert "1 run diverged. 2 runs failed. The time of 1 failed run is not known." in text


def test_limitations_name_each_undecided_row_with_what_would_be_found(fake):
    results = fake().all_done()
    for seed, score in ((1, 20.0), (2, 26.0), (3, 23.0)):  # as base, with noise
        results.done("A h=1", seed, 5.0, score)
    outcome = results.outcome()
    (bleu,) = outcome.table.judged_metrics
    text = methods(outcome, results.results)["Limitations"]
    undecided = 0
    for row in outcome.table.rows[1:]:
        verdict = row.verdicts[bleu.name]
        is_named = f"{row.label} ({bleu.size_text(verdict.minimum_detectable)})" in text
        assert is_named == (verdict.word == "cannot tell")
        undecided += is_named
    assert undecided
    assert "No margin" in text


def test_limitations_state_the_bounds_of_the_conclusion(fake):
    results = fake().all_done()
    for seed, score in ((1, 95.0), (2, 91.0), (3, 99.0)):
        results.done("base", seed, 5.0, score)
        results.done("A h=1", seed, 5.0, 190.0 - score)
    assert "Base is near the ceiling (95.0 of 100 BLEU)" in texts(results)["Limitations"]


def test_one_seed_is_said_to_give_no_verdict_and_two_metrics_to_share_the_level(fake):
    one = texts(fake(seeds="1").all_done())["Statistics"]
    assert "no row has a verdict" in one
    assert "Holm" not in one
    two = texts(fake(SMALL + "judge: [ppl, bleu]\n").all_done())["Statistics"]
    assert "by PPL and BLEU, by each of these metrics separately at a level of 0.025" in two
    assert "By a metric, a row is called worse or better than base if its mean" in two
    single = texts(fake().all_done())["Statistics"]
    assert "if its mean difference in BLEU, paired by seed, is significant at 0.05 in two" in single


def test_the_checklists_answer_with_the_sections_of_the_methods(fake):
    results = fake().all_done()
    text = paper_files(results.outcome(), results.results)["checklists.md"].decode()
    for section in methods(results.outcome(), results.results).values():
        assert section in text
    assert len(re.findall("^### .*\n\n[A-Z]", text, re.M)) == text.count("### ") == 14


@pytest.mark.parametrize(
    ("data", "uses", "by_hand"),
    [
        ("toy, vocab_size: 200", "@kudo2018sentencepiece] and sacreBLEU [@papineni2002bleu; @post2018call].", ""),
        ("multi30k, direction: en-de", "and the corpus multi30k [@elliott2016multi30k].", ""),
        ("hf:a/b, direction: en-de", "sacreBLEU", "data (corpus hf:a/b) by hand"),
        ("files, direction: a-b, train: t, dev: d, test: e", "sacreBLEU", "data (corpus files) by hand"),
    ],
)  # fmt: skip
def test_the_checklist_of_acl_names_the_software_and_the_corpus_with_their_creators(
    fake, data, uses, by_hand
):
    text = SMALL.replace("toy, vocab_size: 200", data)
    outcome = fake(text).all_done().outcome()
    checklists = paper_files(outcome, fake(text).results)["checklists.md"].decode()
    answer = checklists.split("### B1. ")[1].split("###")[0]
    assert "The study uses ablate [@ablate2026], PyTorch [@paszke2019pytorch; @ansel" in answer
    assert uses in answer
    assert ("by hand" in answer) == bool(by_hand)
    assert by_hand in answer


def test_publish_says_that_the_source_of_own_text_is_cited_by_hand(fake, tmp_path):
    text = SMALL.replace("toy, vocab_size: 200", "files, direction: a-b, train: t, dev: d, test: e")
    for study, note in ((text, True), (SMALL, False)):
        results = fake(study, seeds="1").all_done()
        words = ("--results", results.results.root, "--out", tmp_path / f"to-{note}")
        done = inside("publish", results.study.path, *words)
        assert done.code == 0
        assert ("Cite the source of the data (corpus files) by hand" in done.err) == note


@pytest.mark.parametrize(
    ("study", "data"),
    [
        ("quickstart-lm", "The task is language-model. The corpus is toy, which ablate generates."),
        ("quickstart-mlm", "The task is masked-lm. The corpus is toy, which ablate generates."),
        ("quickstart-parsing", "The task is parsing. The corpus is toy, which ablate generates."),
        (
            "quickstart-recall",
            "The corpus is recall [@arora2023zoology], which ablate generates, with items drawn "
            "anew in every step for training, ",
        ),
        (
            "since-gpt2",
            "The text is read from files, with input.txt as training set, 5% of its text as "
            "development set and 5% of its text as test set.",
        ),
        (
            "shakespeare",
            "input.txt as training set, and 10% of its text as development set and test set.",
        ),
        ("grokking", "with 4000 items for training, "),
    ],
)
def test_studies_of_every_task_have_methods(fake, study, data):
    results = fake((STUDIES / f"{study}.yaml").read_text())
    assert data in texts(results)["Data"]


def test_a_paper_cites_what_its_references_have_and_nothing_else(fake):
    results = fake(PARTS).all_done()
    files = {
        name: content.decode()
        for name, content in paper_files(results.outcome(), results.results).items()
    }
    commands = re.findall(r"\\cite\{([^}]+)\}", files["paper.tex"])
    keys = {key for command in commands for key in command.split(",")}
    entries = re.findall(r"^@\w+\{(\w+),", files["references.bib"], re.M)
    assert keys == set(entries) <= set(references())
    assert set(re.findall(r"@(\w+)", files["methods.md"])) == keys


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_compiles_the_paper_on_one_page(fake, tmp_path):
    results = fake(PARTS).all_done()
    for name, content in paper_files(results.outcome(), results.results).items():
        (tmp_path / name).write_bytes(content)
    assert "Output written on paper.pdf (1 page" in compiled(tmp_path, "paper.tex")


def test_the_crate_describes_every_file_and_is_read_again(fake, tmp_path):
    results = fake(seeds="1").all_done()
    folder = tmp_path / "to"
    words = ("--results", results.results.root, "--out", folder)
    assert inside("publish", results.study.path, *words).code == 0
    files = {path.name for path in folder.iterdir()} - {METADATA}
    read = ROCrate(folder)
    assert {entity.id for entity in read.get_by_type("File")} == files
    assert all(entity["description"] for entity in read.get_by_type("File"))
    outcome = results.outcome()
    assert crate(outcome, sorted(files)) == crate(outcome, sorted(files))
