"""The estimate of memory, against the tensors that autograd keeps and the storage that is alive in
a step.
"""

import importlib
import pkgutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ablate import kernels, model
from ablate.config.cost import optimizer_values, parameters
from ablate.config.memory import activation_bytes, peak_memory
from ablate.config.resolve import resolve_row
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.kernels.ranks import Ranks
from ablate.model import build
from ablate.training.gradient_tree import GradientTree
from ablate.training.optimizer import Optimizer
from tests.model.random_shapes import RECURRENT_NETWORKS

V, B, T = 96, 32, 32
SMALL = {"n_layers": 2, "d_model": 48, "d_ff": 144, "n_heads": 3}
ONE_STACK = {"architecture": "decoder-only", "context": T}
FIELDS = [
    {}, {"norm": "rmsnorm"}, {"norm": "unit"}, {"activation": "gelu"}, {"activation": "swiglu"}, {"n_kv_heads": 1},
    {"attention": "local"}, {"attention": "linear"}, {"attention": "differential", "n_heads": 4},
    {"d_k": 4, "d_v": 20}, {"activation_dropout": 0.1}, {"activation_dropout": 0.1, "activation": "swiglu"},
    {"norm_position": "pre"}, {"norm_position": "none"}, {"dropout": 0.0}, {"attention_dropout": 0.1},
    *({"positional_encoding": name} for name in ("learned", "rope", "t5", "relative", "alibi")),
    {"n_layers": 3, "d_ff": [96, 144, 192], "n_kv_heads": [1, 3, 3], "activation": ["gelu", "relu"]},
    {"qk_norm": "head"}, {"qk_norm": "width"}, {"qk_norm": "unit", "attention_dropout": 0.1},
    {"attention_gate": "head"}, {"attention_gate": "element"}, {"attention_sinks": True}, {"score_cap": 20.0},
    {"attention_convolution": "input"}, {"attention_convolution": "qkv"}, {"value_residual": True}, {"loops": 3},
    {"value_embeddings": "gated"}, {"stream_scale": True}, {"layer_skips": "dense"}, {"smear": True},
    {"kv_rank": 16}, {"kv_rank": 24, "query_rank": 16}, {"exclude_own_value": True}, {"residual_scale": "scalar"},
    {"value_embeddings": "added", "value_embedding_rank": 16}, {"norm_position": "pre", "norm_scale": "depth"},
    {"hyper_connections": "static", "norm_position": "pre"}, {"hyper_connections": "dynamic", "norm_position": "pre"},
]  # fmt: skip
STACKS = [
    {"n_cross_heads": 1}, {"encoder_layers": 3, "decoder_layers": 1}, {"architecture": "encoder-only"},
    {"architecture": "encoder-only", "norm_position": "pre", "embedding_norm": True},
    {**ONE_STACK, "document_masks": True},
    {**ONE_STACK, "positional_encoding": "rope", "n_kv_heads": 1, "norm": "rmsnorm", "activation": "swiglu"}, {**ONE_STACK, "n_experts": 4, "experts_per_token": 2},
]  # fmt: skip


@pytest.fixture(params=["cpu", "cuda"])
def device(request, monkeypatch):
    """The kernels of a device. Those of a GPU work on CPU tensors here, not compiled."""
    if request.param == "cuda":
        for package in (kernels, model):
            for found in pkgutil.iter_modules(package.__path__):
                # torch's RMSNorm of a GPU keeps as much as ours of a CPU, and torch's of a CPU more.
                if found.name == "norms":
                    continue
                module = importlib.import_module(f"{package.__name__}.{found.name}")
                for name, answer in (("on_gpu", True), ("rounds_to_bf16", False)):
                    if hasattr(module, name):
                        monkeypatch.setattr(module, name, lambda _, answer=answer: answer)
    return request.param


def states(network, config):
    """The states of a batch with some padding in the source."""
    source, target = (torch.ones(B, T, dtype=torch.int64) for _ in range(2))
    source[0, -1] = 0
    if config.architecture == "encoder-decoder":
        return network(source, target)
    return network.read(source if config.has_encoder else target)


def kept_bytes(config, bf16):
    """Bytes of the tensors that a forward pass keeps for the backward pass, without the model's."""
    network, found = build(config, V, 1).train(), {}
    of_model = {tensor.untyped_storage().data_ptr() for tensor in network.state_dict().values()}
    of_model |= {tensor.untyped_storage().data_ptr() for tensor in network.buffers()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in of_model:
            found[storage.data_ptr()] = storage  # kept alive, so that no address is met twice
        return tensor.detach()  # the tensor itself would keep its graph alive for ever

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        out = states(network, config)
    assert out.requires_grad
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
def test_the_tensors_kept_for_the_backward_pass_are_counted_within_30_percent(device, bf16):
    for fields in (*FIELDS, *({**fields, **ONE_STACK} for fields in FIELDS), *STACKS):
        config = resolve_row({**SMALL, **fields})
        estimated = activation_bytes(config, B * T, T, bf16=bf16, on_gpu=device == "cuda")
        assert estimated == pytest.approx(kept_bytes(config, bf16), rel=0.3), fields


@pytest.mark.parametrize("mixer", RECURRENT_NETWORKS)
def test_a_recurrent_network_keeps_its_workspace_or_the_states_of_a_packed_batch(mixer):
    for fields in (
        {"architecture": "decoder-only", "context": T},
        {"architecture": "encoder-only"},
    ):
        config = resolve_row({**SMALL, **fields, "mixer": mixer})
        estimated = activation_bytes(config, B * T, T, bf16=False, on_gpu=False)
        assert estimated == pytest.approx(kept_bytes(config, bf16=False), rel=0.3), fields


class Alive(TorchDispatchMode):
    """Counts the bytes of storage that operators have made and that is still alive, and the most at
    one time.
    """

    def __init__(self):
        super().__init__()
        self.storages, self.peak = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        given = {
            x.untyped_storage()._cdata
            for x in tree_leaves((args, kwargs))
            if isinstance(x, torch.Tensor)
        }
        self.storages = {
            key: (ref, size) for key, (ref, size) in self.storages.items() if not ref.expired()
        }
        for tensor in tree_leaves(out):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in given:
                self.storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))
        return out


@pytest.mark.parametrize(
    ("fields", "vocab_size", "precision"),
    [
        ({}, 1000, "fp32"), ({}, 1000, "bf16"), ({}, 4000, "fp32"), ({}, 4000, "bf16"), ({"d_ff": 1024}, 96, "fp32"),
        ({"d_ff": 1024}, 96, "bf16"), ({"activation": "swiglu", "norm_position": "pre"}, 1000, "fp32"),
        ({"architecture": "decoder-only", "context": T, "tied_embeddings": "none"}, 2000, "fp32"),
        ({"n_layers": 1, "d_model": 384, "d_ff": 64}, 8000, "fp32"), ({"positional_encoding": "t5"}, 96, "bf16"),
    ],
    ids=str,
)  # fmt: skip
def test_the_peak_of_a_step_is_within_30_percent(fields, vocab_size, precision):
    """Of a second micro-batch, which finds the gradients of the first one."""
    config = resolve_row(
        {"n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4, "precision": precision, **fields}
    )
    network = build(config, vocab_size, 1).train()
    optimizer = Optimizer(network, config)
    optimizer.allocate()

    def micro_batch():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            found = states(network, config).flatten(0, 1)[
                :-12
            ]  # a last chunk of logits that is padded
            targets = torch.ones(len(found), dtype=torch.int64)
            loss = smoothed_cross_entropy(found, network.output_matrix, targets, 0.1)
        loss.backward()

    micro_batch()
    with Alive() as alive:
        micro_batch()
        optimizer.step(1e-3)
    count = parameters(config, vocab_size)
    assert count == sum(parameter.numel() for parameter in network.parameters())
    measured = alive.peak + 4 * (2 * count + optimizer_values(config, count))
    assert peak_memory(config, vocab_size, B * T, length=T) == pytest.approx(measured, rel=0.3)


class OneOf(Ranks):
    """A rank whose sums with the others do nothing."""

    def __init__(self, size):
        self.size = size

    def sum_in_tree(self, values):
        pass


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_the_sums_of_the_gradient_tree_are_counted(processes):
    """Beside weights, gradients and state: what processes exchange."""
    config = resolve_row({"n_layers": 1, "d_model": 64, "d_ff": 256, "n_heads": 1})
    count = parameters(config, 1000)
    weight = nn.Parameter(torch.zeros(count))
    tree = GradientTree([weight], OneOf(processes)) if processes > 1 else None
    with Alive() as alive:
        weight.grad = torch.ones(count) + 0
        computed = sum(size for ref, size in alive.storages.values() if not ref.expired())
        if tree is not None:
            tree.add(torch.zeros(()))
    few, many = (peak_memory(config, 1000, tokens, processes=processes) for tokens in (1, 100_000))
    state = 4 * (count + optimizer_values(config, count))
    exchanged = {1: 1, 2: 2.5, 8: 2.75}[processes] if processes > 1 else 0
    assert few - state == pytest.approx(max(alive.peak, exchanged * 4 * count), rel=0.15)
    alone = peak_memory(config, 1000, 100_000) - state - 4 * count
    assert many - state - alone == pytest.approx(computed, rel=0.01)


# Properties


@given(st.integers(1, 50_000), st.integers(1, 50_000), st.sampled_from(["fp32", "bf16"]))
def test_memory_grows_with_the_micro_batch(a, b, precision):
    config = resolve_row({**SMALL, "precision": precision})
    few, many = sorted((a, b))
    assert peak_memory(config, 97, few) <= peak_memory(config, 97, many)
    assert (peak_memory(config, 97, few) == peak_memory(config, 97, many)) == (few == many)


@pytest.mark.parametrize(
    "larger",
    [
        {"n_layers": 7}, {"d_model": 1024}, {"d_ff": 4096}, {"d_k": 128}, {"d_v": 128}, {"n_heads": 16, "d_k": 64},
        {"encoder_layers": 7}, {"decoder_layers": 7}, {"n_cross_heads": 16}, {"tied_embeddings": "none"},
        {"positional_encoding": "relative"}, {"attention_dropout": 0.1}, {"attention": "linear"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_memory_grows_with_every_size_and_with_every_kept_activation(larger, on):
    heads = {"d_k": 64, "d_v": 64}
    V = 10_000
    assert peak_memory(resolve_row({**heads, **larger}), V, 4096, on) > peak_memory(
        resolve_row(heads), V, 4096, on
    )
