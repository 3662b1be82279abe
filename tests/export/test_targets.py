"""Configurations that another library does not support are refused with every reason, and folders
in use are kept.
"""

import json
import resource
from pathlib import Path

import pytest

from ablate.config.resolve import resolve_row
from ablate.errors import UsageError
from ablate.export import export_run
from ablate.export.causal import CAUSAL, RECURRENT_GEMMA
from ablate.export.causal import LLAMA as LLAMA_MODEL
from ablate.export.ctranslate import GENERATOR, TRANSLATOR
from ablate.export.encoders import MARIAN
from ablate.export.huggingface import penalty_note, write_transformers
from ablate.store import Results
from ablate.study import Row
from tests.cli.inside import inside
from tests.export.small import LLAMA, random_model
from tests.export.targets import all_targets

(NANOCHAT,) = (target for target in CAUSAL if target.name == "NanoChatForCausalLM")


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (MARIAN, {}),
        (LLAMA_MODEL, LLAMA),
        (TRANSLATOR, {}),
        (GENERATOR, {"architecture": "decoder-only"}),
        # What acts in training alone.
        (MARIAN, {"initialization": "normal", "initialization_std": 0.1, "z_loss": 1e-4}),
        (LLAMA_MODEL, {**LLAMA, "output_initialization": "zero"}),
    ],
)
def test_a_supported_configuration_has_no_violation(target, fields):
    assert target.violations(resolve_row(fields)) == []


@pytest.mark.parametrize(
    ("target", "fields", "expected"),
    [
        (MARIAN, {"norm_position": "pre"}, "norm_position=pre, but MarianMTModel supports only post"),
        (MARIAN, {"d_k": 32}, "d_k=32 and d_v=64, but every head of MarianMTModel has size d_model / h"),
        (LLAMA_MODEL, {**LLAMA, "norm": "layernorm"}, "norm=layernorm, but LlamaForCausalLM supports only rmsnorm"),
        (
            LLAMA_MODEL,
            {**LLAMA, "n_heads": 7, "d_k": 64, "d_v": 64},
            "n_heads=7 and d_model=512, but LlamaForCausalLM needs n_heads to divide d_model",
        ),
        (LLAMA_MODEL, {**LLAMA, "activation": "swiglu_clamped"}, "activation=swiglu_clamped, but LlamaForCausalLM supports only swiglu, geglu, geglu_tanh or reglu"),
        (
            NANOCHAT,
            {"preset": "nanochat", "rope_scaling": "yarn"},
            "rope_scaling=yarn, but NanoChatForCausalLM supports only none or linear",
        ),
        (
            RECURRENT_GEMMA,
            {"preset": "recurrent-gemma", "activation": "swiglu"},
            "activation=swiglu, but RecurrentGemmaForCausalLM supports only geglu_tanh",
        ),
        (TRANSLATOR, {"residual": False}, "residual=false, but ctranslate2's Translator supports only true"),
        (
            TRANSLATOR,
            {"n_cross_heads": 4},
            "n_cross_heads=4, but ctranslate2's Translator has as many heads in cross-attention as "
            "in self-attention",
        ),
        (
            GENERATOR,
            {"architecture": "decoder-only", "d_v": 32},
            "d_k=64 and d_v=32, but ctranslate2's Generator needs them equal",
        ),
    ],
)  # fmt: skip
def test_an_unsupported_configuration_is_refused_with_the_reason(target, fields, expected):
    assert target.violations(resolve_row(fields)) == [expected]


def test_gemma3_has_one_base_for_each_kind_of_attention():
    fields = {"preset": "gemma3", "n_layers": 6, "d_model": 64, "n_heads": 4, "d_ff": 96}
    (target,) = (target for target in all_targets() if target.name == "Gemma3ForCausalLM")
    assert target.violations(resolve_row(fields)) == []
    bases = [1e4, 2e4, 1e4, 1e4, 1e4, 1e6]
    (reason,) = target.violations(resolve_row({**fields, "rope_base": bases}))
    assert reason.startswith("several rope_base in layers of attention=local")


def test_every_reason_is_reported():
    config = resolve_row({"norm": "rmsnorm", "norm_position": "pre", "positional_encoding": "t5"})
    violations = MARIAN.violations(config)
    assert [text.split("=")[0] for text in violations] == [
        "positional_encoding", "norm", "norm_position",
    ]  # fmt: skip


def test_a_folder_in_use_is_left_as_it_is(translator, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    run = Results(translator.root).run(translator.id)
    for path, reason in (
        (tmp_path / "used", "is not empty"),
        (tmp_path / "used" / "file", "is not a folder"),
    ):
        with pytest.raises(UsageError) as refused:
            export_run(run, Results(translator.root), "huggingface", path)
        assert refused.value.lines == (f"{path}: {reason}; choose another folder",)
    assert (tmp_path / "used" / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


@pytest.mark.parametrize("library", ["huggingface", "ctranslate2"])
def test_a_disk_that_is_full_is_named_and_left_as_it_was(translator, tmp_path, library):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # bytes: less than any weights
    try:
        words = ("export", translator.id, "--out", tmp_path / "out", "--to", library)
        done = inside(*words, "--results", translator.root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.refusal.startswith(f"{tmp_path / 'out'}: ")
    assert not list(tmp_path.iterdir())


def test_a_run_with_an_unsupported_configuration_is_refused_before_anything_is_written(
    continuer, tmp_path
):
    from ablate.store.files import read_json, write_json

    results = Results(tmp_path / "results")
    folder = results.run(continuer.id)
    content = read_json(Results(continuer.root).run(continuer.id).run)
    write_json(folder.run, {**content, "config": {**content["config"], "norm_position": "post"}})
    with pytest.raises(UsageError) as refused:
        export_run(folder, results, "huggingface", tmp_path / "out")
    reason = "norm_position=post, but LlamaForCausalLM supports only pre"
    assert refused.value.lines == (
        f"run {continuer.id} cannot be exported to huggingface: it has {reason}",
    )
    row = Row("B dropout=0.1", "B", continuer.opened.config, "")
    with pytest.raises(UsageError) as refused:
        export_run(folder, results, "huggingface", tmp_path / "out", row)
    assert refused.value.lines == (
        f'row "B dropout=0.1" seed 1 cannot be exported to huggingface: it has {reason}',
    )
    assert not (tmp_path / "out").exists()


def test_the_origin_of_the_model_is_written_beside_it(translator, exported):
    from ablate.store.files import read_json

    origin = read_json(exported(translator, "huggingface") / "ablate.json")
    assert (origin["run"], origin["target"], origin["corpus"]) == (
        translator.id, "huggingface", translator.opened.corpus.id,
    )  # fmt: skip
    assert "beam" not in origin["config"]


def test_the_command_names_the_model_that_it_wrote(translator, tmp_path):
    words = (
        "export", translator.id, "--out", tmp_path / "out", "--to", "huggingface", "--results",
        translator.root,
    )  # fmt: skip
    done = inside(*words)
    assert (done.code, done.err) == (0, "")
    assert "for MarianMTModel" in done.out


def test_the_documentation_names_every_target_and_every_restricted_field():
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    for target in all_targets():
        name = target.name.removeprefix("ctranslate2's ")
        assert f"`{name}`" in page
        for name in target.supported:
            assert f"`{name}`" in page or f"`{name}:" in page, (target.name, name)


def test_the_search_of_a_row_is_exported_and_a_penalty_without_equivalent_is_said(
    tokenizer, tmp_path
):
    for settings, expected, noted in (
        ({"beam": 5, "alpha": 1.5, "length_penalty": "length"}, (5, 1.5, "never"), False),
        ({"alpha": 1.5, "early_stopping": True}, (4, 0.0, True), True),
        ({"alpha": 0.0, "early_stopping": True}, (4, 0.0, True), False),
        ({"beam": 1}, (1, 0.0, "never"), False),  # a greedy search compares no lengths
    ):
        _, model = random_model(tokenizer, **settings)
        write_transformers(MARIAN, model, tmp_path)
        found = json.loads((tmp_path / "generation_config.json").read_text())
        names = ("num_beams", "length_penalty", "early_stopping")
        assert tuple(found[name] for name in names) == expected
        assert ("alpha=1.5 with length_penalty=gnmt has no" in penalty_note(model.config)) is noted
