"""Published architectures without an export of their own, said in fields, have the logits and the
parameters of `transformers`: random weights of the reference are copied, part by part.
"""

import pytest
import torch

from ablate.config.cost import parameters
from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.model.experts import MixtureOfExperts
from tests.model.small import sentences
from tests.model.test_published import (  # noqa: F401
    EXPERTS,
    GATED,
    HEADS,
    INNER,
    LENGTH,
    LLAMA,
    SIZES,
    WINDOW,
    D,
    assert_equal_logits,
    in_double,
    share_rotations,
)

transformers = pytest.importorskip("transformers")

V = 97
AT = torch.arange(LENGTH)[None]
COMMON = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": INNER, "num_hidden_layers": 4,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-6,
}  # fmt: skip
NORMS = {
    "around_mixer.norm": "input_layernorm",
    "around_feed_forward.norm": "post_attention_layernorm",
}


def reference(name, auto="AutoModelForCausalLM", **fields):
    """A model of `transformers` with random weights and gains, in double precision."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**fields)
    options = {"attn_implementation": "eager"}
    if any("expert" in key for key in vars(config)):
        options["experts_implementation"] = "eager"  # grouped products have no float64
    model = getattr(transformers, auto).from_config(config, **options).double().eval()
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


def built(theirs, fields, buffers=0):
    """Our model, with as many parameters as the reference and those that are buffers there."""
    row = resolve_row(fields)
    ours = build(row, V, 1).double().eval().requires_grad_(False)
    count = buffers + sum(parameter.numel() for parameter in theirs.parameters())
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


def copy_feed_forward(target, theirs):
    if isinstance(target, MixtureOfExperts):
        copy_experts(target, theirs)
    else:
        copy_network(target, theirs.gate_proj, theirs.up_proj, theirs.down_proj)


def copy_experts(target, theirs):
    target.router.weight.copy_(theirs.gate.weight)
    for number, expert in enumerate(target.experts):
        gate, up = theirs.experts.gate_up_proj[number].chunk(2)
        expert.W_1.weight.copy_(gate)
        expert.W_3.weight.copy_(up)
        expert.W_2.weight.copy_(theirs.experts.down_proj[number])


def in_halves(weight):
    return pairs(weight, 8, 8)


def copy_attention(target, theirs, output="o_proj"):
    copy(target.W_Q, theirs.q_proj, in_halves)
    copy(target.W_K, theirs.k_proj, in_halves)
    copy(target.W_V, theirs.v_proj)
    copy(target.W_O, getattr(theirs, output))


def copy_ends(ours, theirs, change=lambda weight: weight):
    """Untied embeddings, and the norm at the end."""
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)
    copy(ours.decoder_norm, theirs.model.norm, change)


def copy_norms(mine, layer, change=lambda weight: weight):
    for own, their in NORMS.items():
        copy(mine.get_submodule(own), getattr(layer, their), change)


def test_diffllama_has_differential_attention():
    theirs = reference("DiffLlama", **COMMON)
    _, ours = built(theirs, {"preset": "diffllama", **GATED})
    copy_ends(ours, theirs)
    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        attention = layer.self_attn
        copy_attention(mine.mixer, attention)
        lambdas = [getattr(attention, f"lambda_{x}") for x in ("q1", "k1", "q2", "k2")]
        mine.mixer.mechanism.lambdas.copy_(torch.cat(lambdas))
        copy_feed_forward(mine.feed_forward, layer.mlp)
        copy_norms(mine, layer)
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)


def test_gpt_oss_has_sinks_and_clamped_experts():
    theirs = reference(
        "GptOss", **COMMON, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=4, rope_parameters={"rope_type": "default", "rope_theta": 1.5e5},
    )  # fmt: skip
    _, ours = built(theirs, {"preset": "gpt-oss", **EXPERTS, **WINDOW})
    copy_ends(ours, theirs)
    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        copy_attention(mine.mixer, layer.self_attn)
        mine.mixer.sinks.copy_(layer.self_attn.sinks)
        copy(mine.feed_forward.router, layer.mlp.router)
        experts = layer.mlp.experts
        for number, expert in enumerate(mine.feed_forward.experts):
            # Columns and biases of gates and of what they multiply alternate.
            weight, bias = experts.gate_up_proj[number].T, experts.gate_up_proj_bias[number]
            for index, W in enumerate((expert.W_1, expert.W_3)):
                W.weight.copy_(weight[index::2])
                W.bias.copy_(bias[index::2])
            expert.W_2.weight.copy_(experts.down_proj[number].T)
            expert.W_2.bias.copy_(experts.down_proj_bias[number])
        copy_norms(mine, layer)
    cos, sin = theirs.model.rotary_emb(torch.zeros(1, dtype=torch.float64), AT)
    ours.positions.rotations[:LENGTH] = torch.stack([cos[0], sin[0]], dim=-1)
    assert_equal_logits(ours, theirs)


@pytest.mark.parametrize("query_rank", [16, None])
def test_deepseek_v3_has_latent_attention_and_experts_that_a_bias_balances(query_rank):
    theirs = reference(
        "DeepseekV3", **{**COMMON, "num_key_value_heads": HEADS}, moe_intermediate_size=24,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
        first_k_dense_replace=1, q_lora_rank=query_rank, kv_lora_rank=8, qk_rope_head_dim=4,
        qk_nope_head_dim=8, v_head_dim=8,
    )  # fmt: skip
    _, ours = built(
        theirs,
        {"preset": "deepseek-v3", **SIZES, "kv_rank": 8, "query_rank": query_rank, "d_k": 12,
         "d_v": 8, "d_ff": [3 * INNER // 2, 36, 36, 36], "n_experts": [None, 4, 4, 4],
         "experts_per_token": 2},
        buffers=3 * 4,
    )  # fmt: skip

    def rotated_first(weight):
        return weight.unflatten(0, (HEADS, 12)).roll(4, dims=1).flatten(0, 1)

    copy_ends(ours, theirs)
    for mine, layer in zip(ours.decoder, theirs.model.layers, strict=True):
        attention = layer.self_attn
        if query_rank is None:
            copy(mine.mixer.W_Q, attention.q_proj, rotated_first)
        else:
            copy(mine.mixer.down_Q, attention.q_a_proj)
            copy(mine.mixer.norm_down_Q, attention.q_a_layernorm)
            copy(mine.mixer.W_Q, attention.q_b_proj, rotated_first)
        copy(mine.mixer.down_KV, attention.kv_a_proj_with_mqa)
        copy(mine.mixer.norm_down_KV, attention.kv_a_layernorm)
        copy(mine.mixer.W_KV, attention.kv_b_proj)
        copy(mine.mixer.W_O, attention.o_proj)
        copy_feed_forward(mine.feed_forward, layer.mlp)
        if isinstance(mine.feed_forward, MixtureOfExperts):
            copy_feed_forward(mine.feed_forward.shared[0], layer.mlp.shared_experts)
            bias = layer.mlp.gate.e_score_correction_bias
            bias.copy_(torch.randn(4, dtype=torch.float64))
            mine.feed_forward.choice_bias.copy_(bias)
        copy_norms(mine, layer)
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)


def test_lfm2_has_two_short_convolutions_before_attention():
    theirs = reference(
        "Lfm2", **{name: value for name, value in COMMON.items() if name != "rms_norm_eps"},
        norm_eps=1e-6, full_attn_idxs=[2], block_auto_adjust_ff_dim=False,
    )  # fmt: skip
    _, ours = built(theirs, {"preset": "lfm2", **GATED})
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    copy(ours.decoder_norm, theirs.model.embedding_norm)
    for i, (mine, layer) in enumerate(zip(ours.decoder, theirs.model.layers, strict=True)):
        if i == 2:
            attention = layer.self_attn
            copy_attention(mine.mixer, attention, output="out_proj")
            for own, their in (("norm_Q", "q_layernorm"), ("norm_K", "k_layernorm")):
                copy(getattr(mine.mixer, own), getattr(attention, their), in_halves)
        else:
            parts = layer.conv.in_proj.weight.chunk(3)
            for W, weight in zip(("before", "after", "value"), parts, strict=True):
                getattr(mine.mixer, W).weight.copy_(weight)
            copy(mine.mixer.convolution, layer.conv.conv)
            copy(mine.mixer.output, layer.conv.out_proj)
        network = layer.feed_forward
        copy_network(mine.feed_forward, network.w1, network.w3, network.w2)
        copy(mine.around_mixer.norm, layer.operator_norm)
        copy(mine.around_feed_forward.norm, layer.ffn_norm)
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)


def test_mamba2_has_no_feed_forward_networks():
    theirs = reference(
        "Mamba2", vocab_size=V, hidden_size=D, num_hidden_layers=4, state_size=6, num_heads=8,
        head_dim=16, n_groups=1, expand=2, chunk_size=4, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, layer_norm_epsilon=1e-6, tie_word_embeddings=True,
    )  # fmt: skip
    _, ours = built(theirs, {"preset": "mamba2", **SIZES, "d_k": 6, "d_v": 16})
    body = theirs.backbone
    ours.embedding.weight.copy_(body.embeddings.weight)
    copy(ours.decoder_norm, body.norm_f)
    for mine, layer in zip(ours.decoder, body.layers, strict=True):
        mixer, net = mine.mixer, layer.mixer
        gate, V_, K, Q, step = net.in_proj.weight.split([128, 128, 6, 6, 8])
        for W, weight in (("gate", gate), ("value", V_), ("key", K), ("query", Q)):
            getattr(mixer, W).weight.copy_(weight)
        mixer.decay.step.weight.copy_(step)
        mixer.decay.step_bias.copy_(net.dt_bias)
        mixer.decay.log_rate.copy_(net.A_log)
        mixer.skip.copy_(net.D)
        of_value, of_key, of_query = (
            list(zip(net.conv1d.weight.split([128, 6, 6]), net.conv1d.bias.split([128, 6, 6]),
                     strict=True))
        )  # fmt: skip
        for convolution, (weight, bias) in zip(
            mixer.convolutions, (of_query, of_key, of_value), strict=True
        ):
            convolution.weight.copy_(weight)
            convolution.bias.copy_(bias)
        copy(mixer.norm, net.norm)
        copy(mixer.output, net.out_proj)
        copy(mine.around_mixer.norm, layer.norm)
    assert_equal_logits(ours, theirs)


def test_qwen3_next_mixes_gated_deltanet_with_gated_attention():
    theirs = reference(
        "Qwen3Next", **COMMON, head_dim=8, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=INNER, shared_expert_intermediate_size=INNER,
        linear_num_value_heads=4, linear_num_key_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=10,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    )  # fmt: skip
    _, ours = built(
        theirs,
        {"preset": "qwen3-next", **EXPERTS, "n_heads": [4, 4, 4, 8], "d_k": 8,
         "d_v": [10, 10, 10, 8]},
    )  # fmt: skip

    def of_one(weight):  # gains are stored as differences from 1
        return 1 + weight

    copy_ends(ours, theirs, of_one)
    for i, (mine, layer) in enumerate(zip(ours.decoder, theirs.model.layers, strict=True)):
        mixer = mine.mixer
        if i == 3:
            attention = layer.self_attn
            queries, gates = attention.q_proj.weight.view(HEADS, 2, 8, D).unbind(1)
            mixer.W_Q.weight.copy_(pairs(queries.flatten(0, 1), 2, 8))
            mixer.W_G.weight.copy_(gates.flatten(0, 1))
            copy(mixer.W_K, attention.k_proj, lambda weight: pairs(weight, 2, 8))
            copy(mixer.W_V, attention.v_proj)
            copy(mixer.W_O, attention.o_proj)
            copy(mixer.norm_Q, attention.q_norm, lambda weight: 1 + pairs(weight, 2, 8))
            copy(mixer.norm_K, attention.k_norm, lambda weight: 1 + pairs(weight, 2, 8))
        else:
            net = layer.linear_attn
            of_heads = net.in_proj_qkvz.weight.view(4, 36, D).split([8, 8, 10, 10], dim=1)
            for W, weight in zip(("query", "key", "value", "gate"), of_heads, strict=True):
                getattr(mixer, W).weight.copy_(weight.flatten(0, 1))
            strength, step = net.in_proj_ba.weight.view(4, 2, D).unbind(1)
            mixer.strength.weight.copy_(strength)
            mixer.decay.step.weight.copy_(step)
            mixer.decay.step_bias.copy_(net.dt_bias)
            mixer.decay.log_rate.copy_(net.A_log)
            weights = net.conv1d.weight.split([32, 32, 40])
            for convolution, weight in zip(mixer.convolutions, weights, strict=True):
                convolution.weight.copy_(weight)
            copy(mixer.norm, net.norm)
            copy(mixer.output, net.out_proj)
        copy_feed_forward(mine.feed_forward, layer.mlp)
        copy_feed_forward(mine.feed_forward.shared[0], layer.mlp.shared_expert)
        copy(mine.feed_forward.shared_gate, layer.mlp.shared_expert_gate)
        copy_norms(mine, layer, of_one)
    share_rotations(ours, theirs)
    assert_equal_logits(ours, theirs)


def test_rwkv_has_time_mixing_and_channel_mixing_in_turn():
    theirs = reference(
        "Rwkv", vocab_size=V, hidden_size=D, attention_hidden_size=D, num_hidden_layers=3,
        intermediate_size=4 * D, context_length=64, layer_norm_epsilon=1e-6,
    )  # fmt: skip
    _, ours = built(theirs, {"preset": "rwkv", "n_layers": 6, "d_model": D})
    body = theirs.rwkv
    ours.embedding.weight.copy_(body.embeddings.weight)
    ours.output.weight.copy_(theirs.head.weight)
    copy(ours.embedding_norm, body.blocks[0].pre_ln)
    copy(ours.decoder_norm, body.ln_out)
    body.ln_out.eps = 1e-6  # which its configuration does not reach

    def copy_shares(shift, theirs, *names):
        for share, name in zip(shift.shares, names, strict=True):
            share.copy_(getattr(theirs, f"time_mix_{name}").flatten())

    for i, block in enumerate(body.blocks):
        time, channels = ours.decoder[2 * i], ours.decoder[2 * i + 1]
        copy(time.around_mixer.norm, block.ln1)
        copy(channels.around_mixer.norm, block.ln2)
        mixer, net = time.mixer, block.attention
        copy_shares(mixer.shift, net, "key", "value", "receptance")
        for name in ("key", "value", "receptance", "output"):
            copy(getattr(mixer, name), getattr(net, name))
        mixer.log_decay.copy_(net.time_decay)
        mixer.bonus.copy_(net.time_first)
        mixer, net = channels.mixer, block.feed_forward
        copy_shares(mixer.shift, net, "key", "receptance")
        for own, their in (("key", "key"), ("receptance", "receptance"), ("output", "value")):
            copy(getattr(mixer, own), getattr(net, their))
    assert_equal_logits(ours, theirs)


@pytest.mark.parametrize(("activation", "length"), [("relu", 13), ("relu", 150), ("swiglu", 13)])
def test_t5_has_biases_of_bucketed_distances_and_unscaled_scores(activation, length):
    """Past 128 tokens all distances share a bucket. T5 scales the states before the logits, and not
    the embeddings.
    """
    is_gated = activation == "swiglu"
    theirs = reference(
        "T5", "AutoModelForSeq2SeqLM", vocab_size=V, d_model=D, d_kv=8, d_ff=INNER, num_heads=HEADS,
        num_layers=2, num_decoder_layers=3, layer_norm_epsilon=1e-6, pad_token_id=0,
        feed_forward_proj="gated-silu" if is_gated else "relu",
    )  # fmt: skip
    _, ours = built(
        theirs,
        {**SIZES, "encoder_layers": 2, "decoder_layers": 3, "positional_encoding": "t5",
         "norm": "rmsnorm", "norm_position": "pre", "attention_scale": 1, "activation": activation,
         "feed_forward_bias": False, "d_ff": 3 * INNER // 2 if is_gated else INNER},
    )  # fmt: skip
    ours.embedding.weight.copy_(theirs.shared.weight / D**0.5)
    sides = (
        (ours.encoder, ours.source_positions, ours.encoder_norm, theirs.encoder),
        (ours.decoder, ours.target_positions, ours.decoder_norm, theirs.decoder),
    )
    for stack, positions, norm, side in sides:
        positions.weight.copy_(side.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
        copy(norm, side.final_layer_norm)
        for mine, block in zip(stack, side.block, strict=True):
            parts = [(mine.mixer, block.layer[0].SelfAttention, mine.around_mixer, block.layer[0])]
            if stack is ours.decoder:
                cross = mine.cross_attention, block.layer[1].EncDecAttention
                parts.append((*cross, mine.around_cross_attention, block.layer[1]))
            for attention, net, around, layer in parts:
                for name in "QKVO":
                    copy(getattr(attention, f"W_{name}"), getattr(net, name.lower()))
                copy(around.norm, layer.layer_norm)
            network = block.layer[-1].DenseReluDense
            copy(mine.feed_forward.W_1, network.wi_0 if is_gated else network.wi)
            if is_gated:
                copy(mine.feed_forward.W_3, network.wi_1)
            copy(mine.feed_forward.W_2, network.wo)
            copy(mine.around_feed_forward.norm, block.layer[-1].layer_norm)
    source, target = sentences(length, 5, vocab_size=V), sentences(7, length, seed=2, vocab_size=V)
    given = {"input_ids": source, "attention_mask": (source != 0).long()}
    expected = theirs(**given, decoder_input_ids=target).logits[target != 0]
    found = ours.logits(ours(source, target))[target != 0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
