"""Plug-in classes are checked before anything is trained; each fault is one line."""

import os
import textwrap

import pytest
import torch

from ablate.config.plugins import PREFIX, source_hash
from ablate.errors import StoreError, StudyError
from ablate.model import build
from ablate.model.plugin_check import check_plugins
from tests.model.small import V, sentences, shape

IMPORTS = """\
import torch
import torch.nn.functional as F
from torch import nn

from ablate.components import Activation, AttentionMechanism, FullAttention, PositionalEncoding
"""
ARCHITECTURES = ("encoder-decoder", "decoder-only")


@pytest.fixture
def kept(tmp_path):
    """Store a source as a run does; returns the pinned reference to the class `Mine` in it."""

    def keep(source):
        content = (IMPORTS + textwrap.dedent(source)).encode()
        (tmp_path / f"{source_hash(content)}.py").write_bytes(content)
        return f"mymodule:Mine@{source_hash(content)}"

    return keep


@pytest.fixture
def refused(tmp_path, kept):
    """The one error line for a class in this field."""

    def line(field, source, error=StudyError, **fields):
        with pytest.raises(error) as caught:
            check_plugins(shape(**{field: kept(source)}, **fields), tmp_path)
        (message,) = caught.value.lines
        assert "\n" not in message
        return message

    return line


GOOD = {
    "attention": """
        class Mine(AttentionMechanism):
            supports_bias = True

            def __init__(self, config):
                super().__init__(config)
                self.gain = nn.Parameter(torch.tensor(3.0))

            def forward(self, Q, K, V, context):
                scores = self.gain * F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-1, -2)
                bias = context.bias(Q)
                return context.weights(scores if bias is None else scores + bias) @ V
        """,
    "positional_encoding": """
        class Mine(PositionalEncoding):
            def bias(self, layer, Q, queries, keys):
                return -(keys[..., None, :] - queries[..., :, None]).abs().sqrt().unsqueeze(-3)
        """,
    "activation": """
        class Mine(Activation):
            gated = True

            def forward(self, x):
                return x.sigmoid()
        """,
    "norm": """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.gain = nn.Parameter(torch.ones(d_model))

            def forward(self, x):
                return self.gain * x / (x.abs().mean(-1, keepdim=True) + 1e-6)
        """,
}
every_field = pytest.mark.parametrize("field", GOOD)
both = pytest.mark.parametrize("architecture", ARCHITECTURES)


@both
@every_field
@pytest.mark.parametrize("others", [{}, {"positional_encoding": "alibi"}, {"norm_position": "pre"}], ids=str)
def test_a_correct_class_passes(tmp_path, kept, field, architecture, others):
    check_plugins(shape(architecture=architecture, **{**others, field: kept(GOOD[field])}), tmp_path)


@both
def test_classes_for_all_four_fields_pass_together(tmp_path, kept, architecture):
    fields = {field: kept(source) for field, source in GOOD.items()}
    check_plugins(shape(architecture=architecture, max_positions=8, n_layers=5, dropout=0.5, **fields), tmp_path)


@every_field
def test_the_model_uses_the_code_and_the_parameters_of_the_class(tmp_path, kept, field):
    """Its parameters are among the model's, and every state depends on its code."""
    config = shape(**{field: kept(GOOD[field])})
    model, plain = build(config, V, 1, sources=tmp_path).eval(), build(shape(), V, 1).eval()
    assert type(next(m for m in model.modules() if type(m).__name__ == "Mine")).__module__.startswith("ablate_plugin_")
    source, target = sentences(5, 3), sentences(7, 2, seed=2)
    difference = (model(source, target) - plain(source, target)).detach().abs().amax(-1)
    assert bool((difference[target != 0] > 1e-4).all())
    names = {name for name, _ in model.named_parameters() if name.endswith("gain")}
    assert bool(names) == (field in ("attention", "norm"))


@pytest.mark.parametrize(("method", "asked"), [("embed", False), ("rotate", False), ("bias", True), ("values", True)])
def test_acts_on_scores_follows_from_the_methods_that_an_encoding_defines(tmp_path, kept, method, asked):
    """An author need not declare it, and so cannot forget to."""
    pinned = kept(f"class Mine(PositionalEncoding):\n    def {method}(self, *given):\n        raise AssertionError\n")
    model = build(shape(positional_encoding=pinned), V, 1, sources=tmp_path)
    assert (model.source_positions.acts_on_scores, model.target_positions.acts_on_scores) == (asked, asked)


def test_a_class_may_derive_from_a_built_in_variant(tmp_path, kept):
    source = """
        class Mine(FullAttention):
            def forward(self, Q, K, V, context):
                return 2 * super().forward(Q, K, V, context)
        """
    for encoding in ("sinusoidal", "rope", "relative", "t5", "alibi"):
        check_plugins(shape(attention=kept(source), positional_encoding=encoding), tmp_path)


# Faults

FUTURE = "lets a token depend on later ones; `context.mask()` has the allowed keys"
PADDING = "lets padding change a sentence; `context.mask()` has the allowed keys"
STEPS = (
    "incremental decoding disagrees with the full forward pass; "
    "positions are `context.query_positions` and `context.key_positions`"
)


@both
def test_attention_that_sees_the_future_is_refused(refused, architecture):
    source = """
        class Mine(AttentionMechanism):
            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.key_mask is not None:
                    scores = scores.masked_fill(~context.key_mask, -1e9)
                return scores.softmax(-1) @ V
        """
    assert refused("attention", source, architecture=architecture) == f"mymodule:Mine: {FUTURE}"


@both
def test_a_norm_over_the_tokens_of_a_sentence_is_refused(refused, architecture):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()

            def forward(self, x):
                return x - x.mean(1, keepdim=True)
        """
    line = refused("norm", source, architecture=architecture)
    assert line == "mymodule:Mine: lets a token depend on later ones; each token must be treated alone"


ATTENTION = """
    class Mine(AttentionMechanism):
        def forward(self, Q, K, V, context):
            return {}
    """
FORMULA = "context.weights(Q @ K.transpose(-1, -2)) @ V"


@pytest.mark.parametrize(
    ("heads", "fault"),
    [
        (f"({FORMULA}).detach()", "its output has no gradient with respect to V, so nothing before it would learn"),
        (f"F.dropout({FORMULA}, 0.1)", "gives other states when called again: nothing may be random when evaluating"),
        (
            f"F.dropout({FORMULA}, 0.1, self.training)",
            "draws from torch's own generator while training, so no run could be resumed; see `context.weights`",
        ),
    ],
)
def test_attention_without_gradient_or_with_unrepeatable_output_is_refused(refused, heads, fault):
    assert refused("attention", ATTENTION.format(heads)) == f"mymodule:Mine: {fault}"


def test_an_unused_parameter_is_refused(refused):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.spare = nn.Parameter(torch.ones(d_model))

            def forward(self, x):
                return x
        """
    expected = "mymodule:Mine: its parameter spare has no gradient, so it would never learn"
    assert refused("norm", source) == expected


@pytest.mark.parametrize("body", ["    pass\n", "    def embedd(self, x, positions):\n        return x + 1\n"])
def test_a_positional_encoding_without_effect_is_refused(refused, body):
    expected = "mymodule:Mine: defines none of embed, rotate, bias, values, so it has no effect"
    assert refused("positional_encoding", "class Mine(PositionalEncoding):\n" + body) == expected


def test_numbers_drawn_from_torchs_global_generator_follow_from_the_seed(tmp_path, kept):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.gain = nn.Parameter(torch.randn(d_model))

            def forward(self, x):
                return x * self.gain
        """
    config, before = shape(norm=kept(source)), torch.get_rng_state()
    one, same, other = (build(config, V, seed=seed, sources=tmp_path).state_dict() for seed in (1, 1, 2))
    assert all(map(torch.equal, one.values(), same.values()))
    gains = [name for name in one if name.endswith("gain")]
    assert gains
    assert not any(torch.equal(one[name], other[name]) for name in gains)
    assert torch.equal(torch.get_rng_state(), before)  # the check restores the global generator


@both
def test_attention_that_declares_query_masks_but_ignores_them_is_refused(refused, tmp_path, kept, architecture):
    """Hypotheses decoded side by side would see one another."""
    source = """
        class Mine(AttentionMechanism):
            supports_query_masks = {}

            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.key_mask is not None:
                    scores = scores.masked_fill(~context.key_mask, -1e9)
                if context.causal:
                    scores = scores.masked_fill(context.query_positions[:, None] < context.key_positions, -1e9)
                return scores.softmax(-1) @ V
        """
    promise = "with `supports_query_masks`, all that `context.mask()` leaves out must be left out"
    line = refused("attention", source.format(True), architecture=architecture)
    assert line == f"mymodule:Mine: {STEPS}; {promise}"
    check_plugins(shape(attention=kept(source.format(False)), architecture=architecture), tmp_path)


# In a causal stack padding is behind every token, until tokens are decoded one by one after a padded source.
IGNORES_PADDING = {"encoder-decoder": PADDING, "decoder-only": STEPS}


@both
def test_attention_that_ignores_padding_is_refused(refused, architecture):
    source = """
        class Mine(AttentionMechanism):
            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.causal:
                    scores = scores + torch.full_like(scores, -1e9).triu(1)
                return scores.softmax(-1) @ V
        """
    line = refused("attention", source, architecture=architecture)
    assert line == f"mymodule:Mine: {IGNORES_PADDING[architecture]}"


@both
def test_an_encoding_that_counts_positions_within_the_call_is_refused(refused, architecture):
    source = """
        class Mine(PositionalEncoding):
            def embed(self, x, positions):
                return x + torch.arange(x.shape[1])[:, None]
        """
    assert refused("positional_encoding", source, architecture=architecture) == f"mymodule:Mine: {STEPS}"


BODIES = {
    "attention": "class Mine(AttentionMechanism):\n    def forward(self, Q, K, V, context):\n",
    "positional_encoding": "class Mine(PositionalEncoding):\n    def embed(self, x, positions):\n",
    "activation": "class Mine(Activation):\n    def forward(self, x):\n",
    "norm": "class Mine(nn.Module):\n    def __init__(self, d_model):\n        super().__init__()\n"
    "    def forward(self, x):\n",
}


@pytest.mark.parametrize(
    ("field", "body", "error"),
    [
        ("attention", "return Q", "RuntimeError: "),
        ("attention", "return V.mean()", "IndexError: "),
        ("positional_encoding", "return x[..., 1:]", "RuntimeError: "),
        ("activation", "return x[..., 1:]", "RuntimeError: "),
        ("norm", "return x[:, 1:]", "RuntimeError: "),
    ],
)
def test_a_wrong_shape_is_refused(refused, field, body, error):
    line = refused(field, f"{BODIES[field]}        {body}\n")
    assert line.startswith(f"mymodule:Mine: {error}")
    assert len(line) < 250


@pytest.mark.parametrize(("method", "body"), [("rotate", "return given[0][:, :, 1:]"), ("bias", "return given[1]")])
def test_a_rotation_or_a_bias_of_a_wrong_shape_is_refused(refused, method, body):
    source = f"class Mine(PositionalEncoding):\n    def {method}(self, *given):\n        {body}\n"
    assert refused("positional_encoding", source).startswith("mymodule:Mine: RuntimeError: ")


def test_the_message_about_wrong_states_names_the_expected_shape(refused):
    nan = "class Mine(Activation):\n    def forward(self, x):\n        return x.sqrt()\n"
    expected = "mymodule:Mine: gives states that are not finite"
    assert refused("activation", nan) == expected


@every_field
def test_an_exception_of_the_class_becomes_one_line_with_its_source_line(refused, field):
    source = BODIES[field] + "        raise ValueError('first\\nsecond')\n"
    line = len((IMPORTS + textwrap.dedent(source)).splitlines())
    assert refused(field, source) == f"mymodule:Mine: ValueError (line {line} of mymodule): first second"
    source = BODIES[field] + "        assert False\n"
    assert refused(field, source) == f"mymodule:Mine: AssertionError (line {line} of mymodule)"
    source = BODIES[field] + "        torch.ones(2) @ torch.ones(3)\n"
    assert refused(field, source).startswith(f"mymodule:Mine: RuntimeError (line {line} of mymodule): ")


def test_a_constructor_with_other_parameters_is_refused(refused):
    source = "class Mine(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    line = refused("norm", source)
    assert line.startswith("mymodule:Mine: TypeError: ")
    assert "takes 1 positional argument but 2 were given" in line


@pytest.mark.parametrize(
    ("field", "interface"),
    [
        ("attention", "ablate.components.AttentionMechanism"),
        ("positional_encoding", "ablate.components.PositionalEncoding"),
        ("activation", "ablate.components.Activation"),
        ("norm", "torch.nn.Module"),
    ],
)
def test_the_message_about_a_wrong_base_class_names_the_right_one(refused, field, interface):
    source = "class Mine:\n    pass\n"
    assert refused(field, source) == f"mymodule:Mine does not derive from {interface}"
    if field != "norm":
        assert refused(field, "class Mine(nn.Module):\n    pass\n") == f"mymodule:Mine does not derive from {interface}"


def test_a_name_that_no_longer_names_a_class_is_refused(refused):
    source = "class Mine(AttentionMechanism):\n    pass\n\ndel Mine\n"
    assert refused("attention", source) == "mymodule:Mine does not derive from ablate.components.AttentionMechanism"


@pytest.mark.parametrize("encoding", ["relative", "t5", "alibi"])
def test_attention_without_bias_is_refused_with_an_encoding_that_has_one(refused, encoding):
    source = GOOD["attention"].replace("supports_bias = True", "supports_bias = False")
    line = refused("attention", source, positional_encoding=encoding)
    assert line.startswith("attention=mymodule:Mine adds no bias")
    assert line.endswith(
        f"adds no bias to its scores (supports_bias is False), which positional_encoding={encoding} needs"
    )


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope"])
def test_attention_without_bias_passes_with_an_encoding_that_has_none(tmp_path, kept, encoding):
    source = GOOD["attention"].replace("supports_bias = True", "supports_bias = False")
    check_plugins(shape(attention=kept(source), positional_encoding=encoding), tmp_path)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("import no_such_module\n", "ModuleNotFoundError (line {} of mymodule): No module named 'no_such_module'"),
        ("1 / 0\n", "ZeroDivisionError (line {} of mymodule): division by zero"),
        (
            "from . import beside\n",
            "ImportError (line {} of mymodule): attempted relative import with no known parent package",
        ),
    ],
)
def test_a_module_that_does_not_load_is_refused_each_time(refused, first, expected):
    source = first + "class Mine(AttentionMechanism):\n    pass\n"
    for _ in range(2):  # the half-loaded module must not count as loaded
        assert refused("attention", source) == f"mymodule:Mine: {expected.format(IMPORTS.count(chr(10)) + 1)}"


# The source of the class


@pytest.mark.parametrize("change", ["tampered", "removed"])
def test_a_source_with_another_hash_than_pinned_is_refused(tmp_path, kept, change):
    """A module that is already loaded changes nothing about it."""
    pinned = kept(GOOD["attention"])
    (path,) = tmp_path.iterdir()
    config = shape(attention=pinned)
    build(config, V, 1, sources=tmp_path)
    path.write_bytes(path.read_bytes() + b"#") if change == "tampered" else path.unlink()
    with pytest.raises(StoreError) as caught:
        check_plugins(config, tmp_path)
    expected = f"{path}: is not the source of {pinned}; remove the run to start it anew"
    assert caught.value.lines == (expected,)


def test_two_versions_of_a_module_are_two_classes(tmp_path, kept):
    def constant(number):
        return f"class Mine(Activation):\n    def forward(self, x):\n        return {number} * x\n"

    source, target = sentences(5), sentences(7, seed=2)
    first, second, again = (
        build(shape(activation=kept(constant(number))), V, 1, sources=tmp_path).eval()(source, target)
        for number in (2, 3, 2)
    )
    assert first.equal(again)
    assert not first.allclose(second, atol=0.01)


def test_compiled_files_are_neither_read_nor_written(tmp_path, kept):
    """The hash covers the source only; compiled code beside it could come from another."""
    import importlib.util
    import py_compile
    import sys

    pinned = kept("class Mine(Activation):\n    def forward(self, x):\n        return 2 * x\n")
    (path,) = tmp_path.iterdir()
    config = shape(activation=pinned)
    source, target = sentences(5), sentences(7, seed=2)
    right = build(config, V, 1, sources=tmp_path).eval()(source, target)
    assert list(tmp_path.iterdir()) == [path]

    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"return 2", b"return 3"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(path), importlib.util.cache_from_source(str(path)))
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (loaded,) = (name for name in sys.modules if name.startswith(PREFIX) and name.endswith(path.stem))
    del sys.modules[loaded]
    assert build(config, V, 1, sources=tmp_path).eval()(source, target).equal(right)
