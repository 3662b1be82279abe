"""Published architectures, said in fields, have the logits and the parameters of `transformers`.

Random weights of the reference are copied, and its tables of rotations, which it computes in fp32;
the logits then agree to 1e-8 in double precision. The tables themselves are compared below.
"""

import pytest
import torch

from ablate.config import resolve_row
from ablate.config.cost import active_parameters, parameters
from ablate.model import build
from ablate.model.experts import MixtureOfExperts
from ablate.model.positions import RotaryPositions, rope_frequencies
from tests.model.small import sentences

transformers = pytest.importorskip("transformers")

V, D, HEADS, INNER, LENGTH = 97, 64, 8, 48, 12  # heads of 8
ONE_STACK = {
    "architecture": "decoder-only", "n_layers": 4, "d_model": D, "n_heads": HEADS, "n_kv_heads": 2,
    "d_ff": 3 * INNER // 2, "max_positions": 64, "dropout": 0.0, "norm_position": "pre",
    "embedding_scale": 1, "tied_embeddings": "none",
}  # fmt: skip
LLAMA = {
    **ONE_STACK, "positional_encoding": "rope", "norm": "rmsnorm", "activation": "swiglu",
    "feed_forward_bias": False,
}  # fmt: skip
# d_ff without a gate is the inner width itself.
NEOX = {
    **ONE_STACK, "n_kv_heads": None, "d_ff": INNER, "positional_encoding": "rope",
    "activation": "gelu", "attention_bias": True, "sublayers": "parallel",
}  # fmt: skip
GEMMA = {
    **LLAMA, "norm_position": "sandwich", "activation": "geglu_tanh", "attention": ["local", "full"],
    "attention_window": 3, "embedding_scale": "sqrt(d_model)", "tied_embeddings": "all",
}  # fmt: skip
MIXTURE = {"n_experts": 4, "experts_per_token": 2}

COMMON = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": INNER, "num_hidden_layers": 4,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-6,
}  # fmt: skip
NEOX_COMMON = {
    **{name: value for name, value in COMMON.items() if name not in
       ("num_key_value_heads", "rms_norm_eps")}, "layer_norm_eps": 1e-6,
}  # fmt: skip
WINDOW = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
NORMS = {
    "around_mixer.norm": "input_layernorm",
    "around_feed_forward.norm": "post_attention_layernorm",
}
OUTPUT_NORMS = {
    "around_mixer.norm": "post_attention_layernorm",
    "around_feed_forward.norm": "post_feedforward_layernorm",
}
SANDWICH = {
    "around_mixer.norm": "input_layernorm",
    "around_mixer.norm_after": "post_attention_layernorm",
    "around_feed_forward.norm": "pre_feedforward_layernorm",
    "around_feed_forward.norm_after": "post_feedforward_layernorm",
}
# Name -> (name of the reference's configuration, its fields, our fields, names of its norms).
LLAMAS = {
    "llama": ("Llama", {}, LLAMA, NORMS),
    "qwen2": ("Qwen2", {}, {**LLAMA, "attention_bias": "inputs"}, NORMS),
    "qwen3": ("Qwen3", {"head_dim": 8}, {**LLAMA, "qk_norm": "head"}, NORMS),
    "olmo2": (
        "Olmo2", {}, {**LLAMA, "qk_norm": "width", "norm_position": "output"}, OUTPUT_NORMS
    ),
    "olmo3": (
        "Olmo3",
        {"sliding_window": 4},
        {
            **LLAMA, "qk_norm": "width", "norm_position": "output", "attention_window": 3,
            "attention": ["local", "local", "local", "full"],
            "rope_base": 5e5,
        },
        OUTPUT_NORMS,
    ),
    "gemma2": (
        "Gemma2",
        {**WINDOW, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        {**GEMMA, "score_cap": 50.0, "logit_cap": 30.0},
        SANDWICH,
    ),
    "gemma3": (
        "Gemma3Text",
        {**WINDOW, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
        {
            **GEMMA, "qk_norm": "head", "attention": ["local", "local", "local", "full"],
            "rope_base": [1e4, 1e4, 1e4, 1e6],
        },
        SANDWICH,
    ),
    "smollm3": (
        "SmolLM3", {}, {**LLAMA, "positional_encoding": ["rope", "rope", "rope", "none"],
                        "rope_base": 2e6, "tied_embeddings": "all"}, NORMS,
    ),
    "cohere": (
        "Cohere",
        {"layer_norm_eps": 1e-6, "logit_scale": 1.0},
        {
            **LLAMA, "norm": "layernorm_no_bias", "sublayers": "parallel_shared_norm",
            "tied_embeddings": "all",
        },
        {"around_mixer.norm": "input_layernorm"},
    ),
    "mixtral": (
        "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2},
        {**LLAMA, **MIXTURE, "rope_base": 1e6}, NORMS,
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": INNER,
         "decoder_sparse_step": 1, "norm_topk_prob": False},
        {**LLAMA, **MIXTURE, "qk_norm": "head", "expert_weights": "softmax"}, NORMS,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_double(monkeypatch):
    """Keep the reference in double precision, also where it asks for fp32: its norms, its softmax
    and its router.
    """
    to, softmax = torch.Tensor.to, torch.nn.functional.softmax

    def keep(self, *args, **kwargs):
        asked = kwargs.get("dtype", args[0] if args else None)
        return self if asked is torch.float32 else to(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", keep)
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)
    for module in (torch.nn.functional, torch):
        monkeypatch.setattr(
            module, "softmax", lambda x, dim=None, dtype=None, **_: softmax(x, dim=dim)
        )


def reference(name, **fields):
    """A model of `transformers` with random weights and gains, in double precision."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**fields)
    options = {"attn_implementation": "eager"}
    if any("expert" in key for key in vars(config)):
        options["experts_implementation"] = "eager"  # grouped products have no float64
    model = transformers.AutoModelForCausalLM.from_config(config, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64) * 0.1)
    return model.requires_grad_(False)


def pairs(weight, rotated, size):
    """Rows of queries or keys, with the halves of a head's rotated entries taken in turn: the
    reference rotates entry j with entry j + rotated / 2, and this project neighbors.
    """
    heads = weight.unflatten(0, (-1, size))
    first = heads[:, :rotated].unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
    return torch.cat([first, heads[:, rotated:]], dim=1).flatten(0, 1)


def built(theirs, fields):
    """Our model, with as many parameters as the reference."""
    row = resolve_row(fields)
    ours = build(row, V, 1).double().eval().requires_grad_(False)
    count = sum(parameter.numel() for parameter in theirs.parameters())
    assert parameters(row, V) == sum(p.numel() for p in ours.parameters()) == count
    return row, ours


def copy(target, source, change=lambda weight: weight):
    """Copy weight and, where there is one, bias of a module."""
    target.weight.copy_(change(source.weight))
    bias = getattr(source, "bias", None)
    assert (bias is None) == (getattr(target, "bias", None) is None)
    if bias is not None:
        target.bias.copy_(change(bias))


def copy_network(target, gate, up, down):
    for ours, theirs in ((target.W_1, gate), (target.W_3, up), (target.W_2, down)):
        copy(ours, theirs)


def copy_experts(target, theirs):
    target.router.weight.copy_(theirs.gate.weight)
    for number, expert in enumerate(target.experts):
        gate, up = theirs.experts.gate_up_proj[number].chunk(2)
        expert.W_1.weight.copy_(gate)
        expert.W_3.weight.copy_(up)
        expert.W_2.weight.copy_(theirs.experts.down_proj[number])


def share_rotations(ours, rotary, **layer_type):
    """Give our tables the reference's sines and cosines, where both agree to fp32."""
    at = torch.arange(LENGTH)[None]
    found = rotary(torch.zeros(1, LENGTH, D, dtype=torch.float64), at, **layer_type)
    cos, sin = (table.double() for table in found)
    half = cos.shape[-1] // 2
    for table, values in ((ours.cos, cos), (ours.sin, sin)):
        torch.testing.assert_close(table[:LENGTH], values[0, :, :half], rtol=0, atol=1e-5)
        table[:LENGTH] = values[0, :, :half]


def assert_equal_logits(ours, theirs, tokens=None):
    tokens = sentences(LENGTH, LENGTH, vocab_size=V) if tokens is None else tokens
    expected = theirs(tokens, use_cache=False).logits
    torch.testing.assert_close(ours.logits(ours.read(tokens)), expected, rtol=0, atol=1e-8)
    # Token by token, from the cache: what generation does.
    cache = ours.start(tokens[:, :0], 1)
    for t in range(tokens.shape[1]):
        states = ours.step(tokens[:, t : t + 1], cache)
        torch.testing.assert_close(ours.logits(states)[:, 0], expected[:, t], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", LLAMAS)
def test_a_descendant_of_llama_is_said_in_fields(name):
    kind, their_fields, fields, norms = LLAMAS[name]
    theirs = reference(kind, **{**COMMON, **their_fields})
    row, ours = built(theirs, fields)
    gain = (
        1.0 if name.startswith("gemma") else 0.0
    )  # Gemma's gains are stored as differences from 1
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    if ours.output is not None:
        ours.output.weight.copy_(theirs.lm_head.weight)
    copy(ours.decoder_norm, theirs.model.norm, lambda weight: gain + weight)
    in_halves = name != "cohere"  # which rotates neighbors

    def halves(weight):
        return pairs(weight, 8, 8) if in_halves else weight

    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        attention = layer.self_attn
        rotates = getattr(attention, "use_rope", True)
        change = halves if rotates else (lambda weight: weight)
        copy(mine.mixer.W_Q, attention.q_proj, change)
        copy(mine.mixer.W_K, attention.k_proj, change)
        copy(mine.mixer.W_V, attention.v_proj)
        copy(mine.mixer.W_O, attention.o_proj)
        if row.qk_norm != "none":
            copy(mine.mixer.norm_Q, attention.q_norm, lambda weight: gain + halves(weight))
            copy(mine.mixer.norm_K, attention.k_norm, lambda weight: gain + halves(weight))
        if isinstance(mine.feed_forward, MixtureOfExperts):
            copy_experts(mine.feed_forward, layer.mlp)
        else:
            mlp = layer.mlp
            copy_network(mine.feed_forward, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        for own, their in norms.items():
            copy(mine.get_submodule(own), getattr(layer, their), lambda weight: gain + weight)
    encodings = [module for module in ours.modules() if isinstance(module, RotaryPositions)]
    if name == "gemma3":
        for encoding, kind in zip(encodings, ("sliding_attention", "full_attention"), strict=True):
            share_rotations(encoding, theirs.model.rotary_emb, layer_type=kind)
    elif name == "olmo3":
        share_rotations(encodings[0], theirs.model.rotary_emb, layer_type="full_attention")
    elif name == "cohere":
        cos, sin = theirs.model.rotary_emb(torch.zeros(1), torch.arange(LENGTH)[None])
        encodings[0].cos[:LENGTH], encodings[0].sin[:LENGTH] = cos[0, :, ::2], sin[0, :, ::2]
    else:
        share_rotations(encodings[0], theirs.model.rotary_emb)
    assert_equal_logits(ours, theirs)


def test_gpt_neox_has_parallel_sub_layers_and_rotates_a_quarter():
    theirs = reference("GPTNeoX", **NEOX_COMMON, rotary_pct=0.25)
    _, ours = built(theirs, {**NEOX, "rope_fraction": 0.25})
    body = theirs.gpt_neox
    ours.embedding.weight.copy_(body.embed_in.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)
    copy(ours.decoder_norm, body.final_layer_norm)
    for mine, layer in zip(ours.decoder, body.layers, strict=True):
        of_heads = layer.attention.query_key_value
        weight = of_heads.weight.view(HEADS, 3, -1, D)
        bias = of_heads.bias.view(HEADS, 3, -1)
        for index, W in enumerate((mine.mixer.W_Q, mine.mixer.W_K, mine.mixer.W_V)):
            rotated = 2 if index < 2 else 0
            W.weight.copy_(pairs(weight[:, index].flatten(0, 1), rotated, 8))
            W.bias.copy_(pairs(bias[:, index].flatten(), rotated, 8))
        copy(mine.mixer.W_O, layer.attention.dense)
        copy(mine.feed_forward.W_1, layer.mlp.dense_h_to_4h)
        copy(mine.feed_forward.W_2, layer.mlp.dense_4h_to_h)
        copy(mine.around_mixer.norm, layer.input_layernorm)
        copy(mine.around_feed_forward.norm, layer.post_attention_layernorm)
    share_rotations(ours.positions, body.rotary_emb)
    assert_equal_logits(ours, theirs)


def test_phi_shares_one_norm_and_has_a_bias_of_the_logits():
    theirs = reference(
        "Phi", **{**NEOX_COMMON, "num_key_value_heads": 2}, partial_rotary_factor=0.5
    )
    _, ours = built(
        theirs,
        {**NEOX, "n_kv_heads": 2, "rope_fraction": 0.5, "sublayers": "parallel_shared_norm",
         "activation": "gelu_tanh", "output_bias": True},
    )  # fmt: skip
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)
    ours.output_bias.copy_(theirs.lm_head.bias)
    copy(ours.decoder_norm, theirs.model.final_layernorm)
    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        copy(mine.mixer.W_Q, layer.self_attn.q_proj, lambda weight: pairs(weight, 4, 8))
        copy(mine.mixer.W_K, layer.self_attn.k_proj, lambda weight: pairs(weight, 4, 8))
        copy(mine.mixer.W_V, layer.self_attn.v_proj)
        copy(mine.mixer.W_O, layer.self_attn.dense)
        copy(mine.feed_forward.W_1, layer.mlp.fc1)
        copy(mine.feed_forward.W_2, layer.mlp.fc2)
        copy(mine.around_mixer.norm, layer.input_layernorm)
    share_rotations(ours.positions, theirs.model.rotary_emb)
    assert_equal_logits(ours, theirs)


def test_gptj_rotates_neighbors():
    theirs = reference(
        "GPTJ", vocab_size=V, n_embd=D, n_layer=4, n_head=HEADS, n_positions=64, n_inner=INNER,
        rotary_dim=4, layer_norm_epsilon=1e-6,
    )  # fmt: skip
    _, ours = built(
        theirs,
        {**NEOX, "attention_bias": False, "rope_fraction": 0.5, "activation": "gelu_tanh",
         "sublayers": "parallel_shared_norm", "output_bias": True},
    )  # fmt: skip
    body = theirs.transformer
    ours.embedding.weight.copy_(body.wte.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)
    ours.output_bias.copy_(theirs.lm_head.bias)
    copy(ours.decoder_norm, body.ln_f)
    sin, cos = body.rotary_emb.embed_positions.chunk(2, dim=-1)
    ours.positions.sin.copy_(sin)
    ours.positions.cos.copy_(cos)
    for mine, layer in zip(ours.decoder, body.h, strict=True):
        for W, projection in (
            (mine.mixer.W_Q, layer.attn.q_proj), (mine.mixer.W_K, layer.attn.k_proj),
            (mine.mixer.W_V, layer.attn.v_proj), (mine.mixer.W_O, layer.attn.out_proj),
            (mine.feed_forward.W_1, layer.mlp.fc_in), (mine.feed_forward.W_2, layer.mlp.fc_out),
            (mine.around_mixer.norm, layer.ln_1),
        ):  # fmt: skip
            copy(W, projection)
    assert_equal_logits(ours, theirs)


def test_nanochat_has_norms_without_gains():
    theirs = reference("NanoChat", **COMMON)
    _, ours = built(
        theirs,
        {**LLAMA, "d_ff": INNER, "activation": "relu2", "norm": "unit", "qk_norm": "unit", "embedding_norm": True,
         "logit_cap": theirs.config.final_logit_softcapping, "norm_position": "pre"},
    )  # fmt: skip
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)

    def turned(weight):  # it rotates the other way round
        heads = pairs(weight, 8, 8).unflatten(0, (-1, 2))
        return heads.flip(1).flatten(0, 1)

    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        copy(mine.mixer.W_Q, layer.self_attn.q_proj, turned)
        copy(mine.mixer.W_K, layer.self_attn.k_proj, turned)
        copy(mine.mixer.W_V, layer.self_attn.v_proj)
        copy(mine.mixer.W_O, layer.self_attn.o_proj)
        copy(mine.feed_forward.W_1, layer.mlp.fc1)
        copy(mine.feed_forward.W_2, layer.mlp.fc2)
    share_rotations(ours.positions, theirs.model.rotary_emb)
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
    assert active_parameters(one, V) == dense + 4 * 8 * D  # the router
    assert parameters(one, V) == dense + 4 * (8 * D + 7 * 3 * D * INNER)
    assert active_parameters(resolve_row(LLAMA), V) == dense
