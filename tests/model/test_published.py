"""Published architectures, said in fields, have the logits and the parameters of `transformers`.

Our random weights are exported, and the reference's tables of rotations, which it computes in fp32,
are copied; the logits then agree to 1e-8 in double precision. The tables themselves are compared
below.
"""

import pytest
import torch

from ablate.config.cost import idle_parameters, parameters
from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import BOS, EOS, ByteTokenizer
from ablate.decoding.generate import generate_ids
from ablate.export.target import TrainedModel
from ablate.export.targets import find_target
from ablate.model import build
from ablate.model.positions import RotaryPositions, rope_frequencies
from tests.model.small import drawn, sentences

transformers = pytest.importorskip("transformers")

V, D, HEADS, INNER, LENGTH = 260, 64, 8, 48, 12  # heads of 8
SIZES = {
    "n_layers": 4, "d_model": D, "n_heads": HEADS, "d_ff": INNER, "max_positions": 64,
    "dropout": 0.0,
}  # fmt: skip
# The inner width of a gated network is 2/3 d_ff.
GATED = {**SIZES, "n_kv_heads": 2, "d_ff": 3 * INNER // 2}
EXPERTS = {**GATED, "n_experts": 4, "experts_per_token": 2}
LLAMA = {"preset": "llama", **GATED}
NEOX = {"preset": "gpt-neox", **SIZES}
OLMO = {"preset": "olmo2", **GATED}
QWEN = {"preset": "qwen3", **GATED}
WINDOW = {"attention_window": 3}
MODERN_BERT = {"preset": "modernbert", **SIZES, "d_ff": 3 * INNER // 2, **WINDOW}

# Name of the reference, and our fields: a preset with small sizes; what follows it is no part of
# it, or of an architecture without a preset.
PUBLISHED = {
    "llama": ("Llama", LLAMA),
    "llama with biases": ("Llama", {**LLAMA, "attention_bias": True, "feed_forward_bias": True}),
    "llama with geglu": ("Llama", {**LLAMA, "activation": "geglu"}),
    "qwen2": ("Qwen2", {**QWEN, "qk_norm": "none", "attention_bias": "inputs"}),
    "qwen3": ("Qwen3", QWEN),
    "olmo2": ("Olmo2", OLMO),
    "olmo3": ("Olmo3", {**OLMO, "attention": ["local", "local", "local", "full"], **WINDOW}),
    "gemma2": ("Gemma2", {"preset": "gemma2", **GATED, **WINDOW}),
    "gemma3": ("Gemma3", {"preset": "gemma3", **GATED, "n_layers": 6, **WINDOW}),
    "smollm3": ("SmolLM3", {"preset": "smollm3", **GATED}),
    "cohere": ("Cohere", {**LLAMA, "norm": "layernorm_no_bias", "sublayers": "parallel_shared_norm", "tied_embeddings": "all"}),
    "mixtral": ("Mixtral", {"preset": "mixtral", **EXPERTS}),
    "qwen3-moe": ("Qwen3Moe", {"preset": "qwen3-moe", **EXPERTS}),
    "qwen3-moe of all": ("Qwen3Moe", {"preset": "qwen3-moe", **EXPERTS, "expert_weights": "softmax"}),
    "nanochat": ("NanoChat", {"preset": "nanochat", **SIZES, "n_kv_heads": 2}),
    "gpt-neox": ("GPTNeoX", NEOX),
    "gpt-neox in turn": ("GPTNeoX", {**NEOX, "sublayers": "sequential", "n_kv_heads": 2}),
    "phi": ("Phi", {"preset": "phi", **SIZES, "n_kv_heads": 2}),
    "gpt-j": ("GPTJ", {"preset": "gpt-j", **SIZES}),
    "gpt2": ("GPT2", {"preset": "gpt2", **SIZES}),
    "recurrent-gemma": ("RecurrentGemma", {"preset": "recurrent-gemma", **GATED, **WINDOW}),
    "modernbert": ("ModernBert", MODERN_BERT),
    "modernbert with biases": (
        "ModernBert",
        {**MODERN_BERT, "attention_bias": True, "feed_forward_bias": True,
         "output_transform": True, "n_kv_heads": 2},
    ),
}  # fmt: skip
FACTORS = {"embedding_scale": "sqrt(d_model)", "tied_embeddings": "all"}  # which go into a matrix


@pytest.fixture(autouse=True)
def in_double(monkeypatch):
    """Keep the reference in double precision, also where it asks for fp32: its norms, its softmax
    and its router.
    """
    to, softmax, total = torch.Tensor.to, torch.nn.functional.softmax, torch.sum

    def keep(self, *args, **kwargs):
        asked = kwargs.get("dtype", args[0] if args else None)
        return self if asked is torch.float32 else to(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", keep)
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "type", lambda self, dtype: keep(self, dtype))
    monkeypatch.setattr(torch, "sum", lambda x, dtype=None, **kwargs: total(x, **kwargs))
    for module in (torch.nn.functional, torch):
        monkeypatch.setattr(
            module, "softmax", lambda x, dim=None, dtype=None, **_: softmax(x, dim=dim)
        )


def exported(name, folder, **fields):
    """(row, our model, the reference that reads our files), in double precision."""
    kind, published = PUBLISHED[name]
    row = resolve_row({**published, **fields})
    model = drawn(build(row, V, 1).double()).eval().requires_grad_(False)
    form, suffix, auto = "causal", "ForCausalLM", transformers.AutoModelForCausalLM
    if row.has_encoder:
        form, suffix, auto = "masked", "ForMaskedLM", transformers.AutoModelForMaskedLM
    target = find_target(
        {"causal": "language-model", "masked": "masked-lm"}[form], row, "huggingface"
    )
    assert target.violations(row) == []
    assert target.name == kind + ("LMHeadModel" if kind == "GPT2" else suffix)
    trained = TrainedModel(row, model.state_dict(), ByteTokenizer(), ("text",), form)
    target.write(target, trained, folder)
    options = {"dtype": torch.float64, "attn_implementation": "eager"}
    if row.n_experts:
        options["experts_implementation"] = "eager"  # grouped products have no float64
    theirs, info = auto.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(info.values()), info
    assert type(theirs).__name__ == target.name
    return row, model, theirs.eval()


def share_rotations(ours, theirs):
    """Give our tables the reference's sines and cosines, where both agree to fp32."""
    encodings = [module for module in ours.modules() if isinstance(module, RotaryPositions)]
    if hasattr(theirs, "transformer"):  # GPT-2 and GPT-J
        for encoding in encodings:
            sin, cos = theirs.transformer.rotary_emb.embed_positions.double().chunk(2, dim=-1)
            _share(encoding, cos[:LENGTH], sin[:LENGTH])
        return
    (rotary, *_) = (
        module for name, module in theirs.named_modules() if name.endswith("rotary_emb")
    )
    at = torch.arange(LENGTH)[None]
    kinds = [{}] * len(encodings)
    if len(encodings) > 1 or hasattr(rotary, "full_attention_inv_freq"):
        turns = ("full", "sliding") if "Bert" in type(theirs).__name__ else ("sliding", "full")
        kinds = [{"layer_type": f"{kind}_attention"} for kind in turns]
    for encoding, kind in zip(encodings, kinds, strict=False):
        cos, sin = rotary(torch.zeros(1, LENGTH, D, dtype=torch.float64), at, **kind)
        half = cos.shape[-1] // 2
        columns = slice(0, None, 2) if "Cohere" in type(theirs).__name__ else slice(0, half)
        _share(encoding, cos[0, :, columns].double(), sin[0, :, columns].double())


def _share(encoding, cos, sin):
    for table, values in zip(encoding.rotations.unbind(-1), (cos, sin), strict=True):
        torch.testing.assert_close(table[:LENGTH].double(), values, rtol=0, atol=1e-5)
        table[:LENGTH] = values


def assert_equal_logits(ours, theirs):
    vocab_size = len(ours.embedding.weight)
    if ours.config.has_encoder:
        tokens = sentences(LENGTH, LENGTH - 5, vocab_size=vocab_size)
        expected = theirs(tokens, attention_mask=(tokens != 0).long()).logits[tokens != 0]
        logits = ours.logits(ours.read(tokens))[tokens != 0]
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
        return
    tokens = sentences(LENGTH, LENGTH, vocab_size=vocab_size)
    expected = theirs(tokens, use_cache=False).logits
    torch.testing.assert_close(ours.logits(ours.read(tokens)), expected, rtol=0, atol=1e-8)
    # Token by token, from the cache: what generation does.
    cache = ours.start(tokens[:, :0], 1)
    for t in range(tokens.shape[1]):
        states = ours.step(tokens[:, t : t + 1], cache)
        torch.testing.assert_close(ours.logits(states)[:, 0], expected[:, t], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_architecture_is_said_in_fields(tmp_path, name):
    row, ours, theirs = exported(name, tmp_path)
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert parameters(row, V) == count
    if name not in ("gpt-neox in turn", "modernbert with biases"):  # which share no heads there
        assert count == sum(parameter.numel() for parameter in theirs.parameters())
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)
    if row.has_encoder:
        return
    prompt = [BOS, 70, 81]
    text = list(generate_ids(ours, prompt, LENGTH - 3, context=LENGTH, temperature=0.0))
    found = theirs.generate(torch.tensor([prompt]), max_new_tokens=LENGTH - 3)[0, 3:].tolist()
    assert found[: found.index(EOS) if EOS in found else None] == text


@pytest.mark.parametrize("fields", [FACTORS, {"n_heads": 4, "n_kv_heads": 1}], ids=str)
@pytest.mark.parametrize("name", PUBLISHED)
def test_other_sizes_are_exported_too(tmp_path, name, fields):
    heads_of_their_own = PUBLISHED[name][0] not in (
        "GPTNeoX", "Phi", "GPTJ", "GPT2", "RecurrentGemma", "ModernBert",
    )  # fmt: skip
    if "n_heads" in fields and heads_of_their_own:
        fields = {**fields, "d_k": 12, "d_v": 12}
    _, ours, theirs = exported(name, tmp_path, **fields)
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 4.0), ("yarn", 4.0), ("yarn", 2.5)])
@pytest.mark.parametrize(("d_k", "base"), [(8, 1e4), (64, 1e6)])
def test_scaled_rotations_are_those_of_transformers(scaling, factor, d_k, base):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    length = 256
    row = resolve_row(
        {**LLAMA, "d_k": d_k, "d_v": d_k, "max_positions": round(length * factor),
         "rope_base": base, "rope_scaling": scaling, "rope_factor": factor}
    )  # fmt: skip
    frequencies, scale = rope_frequencies(row)
    config = transformers.LlamaConfig(
        head_dim=d_k, max_position_embeddings=round(length * factor),
        rope_parameters={"rope_type": scaling, "factor": factor, "rope_theta": base,
                         "original_max_position_embeddings": length},
    )  # fmt: skip
    theirs, their_scale = ROPE_INIT_FUNCTIONS[scaling](config, torch.device("cpu"))
    torch.testing.assert_close(frequencies, theirs.double(), rtol=1e-5, atol=0)
    assert scale == pytest.approx(their_scale)


def test_active_parameters_leave_out_idle_experts():
    dense = parameters(resolve_row(LLAMA), V)
    one = resolve_row({**LLAMA, "n_experts": 8, "experts_per_token": 1, "shared_experts": 0})
    assert parameters(one, V) - idle_parameters(one) == dense + 4 * 8 * D  # the router
    assert parameters(one, V) == dense + 4 * (8 * D + 7 * 3 * D * INNER)
    assert idle_parameters(resolve_row(LLAMA)) == 0
