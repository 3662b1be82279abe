"""Exported language models: the logits and greedy texts of GPT-2 and Llama are ours, and so are
parameter counts.
"""

import pytest
import torch

from ablate.config import cost
from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import BOS, EOS, ByteTokenizer
from ablate.decoding.generate import generate_ids
from ablate.errors import listed
from ablate.export.causal import GPT2 as GPT2_TARGET
from ablate.export.causal import LLAMA as LLAMA_TARGET
from ablate.export.target import TrainedModel
from ablate.export.targets import find_target
from tests.tasks.language import SIZES, small

transformers = pytest.importorskip("transformers")

GPT2 = {"positional_encoding": "learned", "activation": "gelu", "attention_bias": True}
LLAMA = {"positional_encoding": "rope", "norm": "rmsnorm", "activation": "swiglu"}
MODELS = {
    "gpt2": (GPT2, GPT2_TARGET),
    "llama": (LLAMA, LLAMA_TARGET),
}
SHAPES = (
    {},
    {"embedding_scale": 1},
    {"tied_embeddings": "none"},
    {"tied_embeddings": "none", "embedding_scale": 1},
    {"attention_bias": False},
    {"attention_bias": True},
    {"feed_forward_bias": False},
    {"n_kv_heads": 1},
)
CASES = [
    *((name, shape) for name in MODELS for shape in SHAPES),
    ("gpt2", {"positional_encoding": "sinusoidal"}),
    ("gpt2", {"positional_encoding": "none"}),
    ("gpt2", {"activation": "relu"}),
    ("gpt2", {"attention_bias": "inputs"}),
    ("llama", {"rope_scaling": "yarn", "rope_factor": 4.0}),
    # Heads of future tokens are training's: there is no place for them there.
    ("gpt2", {"future_tokens": 2}),
    ("llama", {"future_tokens": 1, "tied_embeddings": "none", "n_kv_heads": 1}),
    ("llama", {"rope_scaling": "linear", "rope_factor": 2.0, "rope_base": 5e4}),
]


def exported(name, folder, **fields):
    """(row, our model, the model that the library loads from our files)."""
    settings, target = MODELS[name]
    config, model = small(**{**settings, **fields})
    trained = TrainedModel(config, model.state_dict(), ByteTokenizer(), ("text",), "causal")
    target.write(target, trained, folder)
    cls = getattr(transformers, target.name)
    there, info = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return config, model, there.eval()


@pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
def test_logits_and_greedy_texts_are_ours(tmp_path, name, fields):
    config, model, there = exported(name, tmp_path, **fields)
    tokens = torch.tensor([[BOS, 70, 81, 90, 4, 259, 31, 32], [BOS, *range(100, 107)]])
    found = there(tokens).logits
    torch.testing.assert_close(found, model.logits(model.read(tokens)), atol=1e-4, rtol=1e-4)
    prompt = [BOS, 70, 81]
    ours = list(generate_ids(model, prompt, 40, context=config.max_positions, temperature=0.0))
    theirs = there.generate(torch.tensor([prompt]), max_new_tokens=40)[0, 3:].tolist()
    assert theirs[: theirs.index(EOS) if EOS in theirs else None] == ours
    assert len(ours) > 1


def test_the_byte_tokenizer_there_is_ours(tmp_path):
    exported("gpt2", tmp_path)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The cat\n\n sat.\t€ Ünal \x01 'quoted' <x> don't 123", "  two  spaces ", "\r\n"):
        ids = ByteTokenizer().encode([text])[0]
        assert there.encode(text, add_special_tokens=False) == ids
        assert there.decode(ids) == text
    assert (there.bos_token_id, there.eos_token_id) == (BOS, EOS)


@pytest.mark.parametrize("preset", ["gpt-nano", "gpt2-small", "llama-tiny"])
@pytest.mark.parametrize("V", [260, 50_257])
def test_presets_have_as_many_parameters_as_the_library_s_models(preset, V):
    config = resolve_row({"preset": preset})
    settings = find_target("language-model", config, "huggingface").settings(config)
    with torch.device("meta"):
        there = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(vocab_size=V, **settings)
        )
    assert cost.parameters(config, V) == there.num_parameters()


ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel", "gpt-neox": "GPTNeoXForCausalLM", "gpt-j": "GPTJForCausalLM",
    "llama": "LlamaForCausalLM", "mixtral": "MixtralForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM", "nanochat": "NanoChatForCausalLM",
    "recurrent-gemma": "RecurrentGemmaForCausalLM",
}  # fmt: skip


@pytest.mark.parametrize("preset", ARCHITECTURES)
def test_the_preset_of_an_architecture_is_exported_as_it(preset):
    sizes = {"n_layers": 6, "d_model": 64, "d_ff": 96, "n_heads": 4}
    config = resolve_row({"preset": preset, **sizes})
    target = find_target("language-model", config, "huggingface")
    assert (target.name, target.violations(config)) == (ARCHITECTURES[preset], [])


def test_known_counts_of_presets():
    assert (
        cost.parameters(resolve_row({"preset": "gpt2-small"}), 50_257) == 124_439_808
    )  # as published
    assert cost.parameters(resolve_row({"preset": "llama-tiny"}), 32_000) == 15_191_712


def reasons(library="huggingface", **fields):
    config = resolve_row(
        {"architecture": "decoder-only", "label_smoothing": 0.0, **SIZES, **fields}
    )
    target = find_target("language-model", config, library)
    return (
        target
        if target is None
        else (target.name, listed(target.violations(config) or ["nothing"]))
    )


def test_the_target_is_the_model_that_fits():
    assert reasons(**GPT2) == ("GPT2LMHeadModel", "nothing")
    assert reasons(**LLAMA) == ("LlamaForCausalLM", "nothing")
    name, why = reasons(**{**LLAMA, "norm": "layernorm"})
    assert (name, why) == (
        "LlamaForCausalLM",
        "norm=layernorm, but LlamaForCausalLM supports only rmsnorm",
    )
    assert "d_k=8 and d_v=4" in reasons(**GPT2, d_v=4)[1]
    assert reasons("ctranslate2", **GPT2) is None
