"""Every pair of values of the model's fields, in configurations that hold many pairs each.

`python -m tests.model.pairs` builds and runs them until each pair was in one, or was refused by one
line; the tests take a sample. `python -m tests.model.pairs 60 2 future_tokens` takes 60 models in
another order, for the pairs of one field. A pair whose fields need further settings gets these.
"""

import random
import sys
from itertools import combinations

import torch
from pydantic import ValidationError

from ablate.config import ModelConfig
from ablate.config.cost import parameters
from ablate.config.inactive import inactive_fields
from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import EOS
from ablate.errors import Invalid
from ablate.fields import SET, facts_of, field_faults
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.model import build
from ablate.tasks import LanguageModel
from tests.model.random_shapes import VALUES, is_bounded
from tests.model.small import batch_of, drawn, sentences

V = 31
OF_HEADS = {"future_tokens": [0, 1, 2], "future_loss": [1.0, 0.25]}
START = {
    "architecture": "decoder-only", "n_layers": 2, "d_model": 12, "d_ff": 9, "n_heads": 2, "d_k": 6,
    "d_v": 4, "max_positions": 40, "norm_position": "pre",
}  # fmt: skip


def values():
    """Values of each field, without repetitions; of a range, its ends."""
    few = {**VALUES, **OF_HEADS, "embedding_norm": [False, True]}
    for name, all_values in few.items():
        own = list(dict.fromkeys(all_values))
        is_range = len(own) > 5 and all(type(value) is int for value in own)
        few[name] = [own[0], own[-1]] if is_range else own
    return few


def pairs_of(few):
    """All pairs ((field, value), (field, value)) of different fields."""
    pairs = []
    for first, second in combinations(few, 2):
        for a in few[first]:
            pairs += [((first, a), (second, b)) for b in few[second]]
    return pairs


class Refused(ValueError):
    """A pair that cannot be combined. `args[0]`: the message."""


def resolved(settings, written=()):
    """The configuration; raises Refused with the message of a study."""
    try:
        return resolve_row(settings, written)
    except ValidationError as error:
        raise Refused("; ".join(fault.sentence for fault in field_faults(error))) from None
    except Invalid as error:
        raise Refused(str(error)) from None


def needs_of(part):
    """The settings that choose a part and those around it."""
    if part is None:
        return {}
    needs = dict(part.needs)
    for parent in part.parents:
        needs |= needs_of(parent)
    return needs


def with_needs(settings, few):
    """The settings, and those that their fields need for an effect."""
    facts, whole = facts_of(ModelConfig), dict(settings)
    for name in list(whole):
        for selector, allowed in needs_of(facts[name].part).items():
            if selector in whole or selector not in few:
                continue
            wanted = [value for value in few[selector] if value in allowed]
            if allowed == (SET,):
                wanted = [value for value in few[selector] if value]
            if wanted:
                whole[selector] = wanted[0]
    if whole != settings:
        return with_needs(whole, few)
    return whole


def configuration(pair, few, dice):
    """A configuration with a pair in which both values have an effect, and other fields at random.

    Raises:
        Refused: there is none.
    """
    settings = with_needs(dict(pair), few)
    settings = {**START, **settings}
    config = resolved(settings, [name for name, value in pair if value is not None])
    for name in dice.sample(sorted(few), len(few)):
        further = {**settings, name: dice.choice(few[name])}
        if (name in settings and name not in START) or further.get("residual") is False:
            continue  # without residuals, little but rounding errors is left of some values
        try:
            config = resolved(further, [name for name, value in pair if value is not None])
        except Refused:
            continue
        settings = further
    return config


def sweep(count=None, seed=1, field=None):
    """Yield (configuration or message, the pair it was made for), with up to `count` configurations.

    A pair that a former configuration has, with both fields in effect, is left out; so is, where a
    field is given, a pair of two others.
    """
    few, dice = values(), random.Random(seed)
    pairs = [pair for pair in pairs_of(few) if field is None or field in dict(pair)]
    dice.shuffle(pairs)
    covered = set()
    for pair in pairs:
        if pair in covered:
            continue
        if count == 0:
            return
        try:
            config = configuration(pair, few, dice)
        except Refused as error:
            yield error.args[0], pair
            continue
        count = None if count is None else count - 1
        active = ModelConfig.model_fields.keys() - inactive_fields(config).keys()
        held = [(name, getattr(config, name)) for name in few if name in active]
        covered.update(combinations(held, 2))
        yield config, pair


def check(config):
    """Build and run a model of this configuration; raises AssertionError with what does not hold.

    Its parameters are as many as the plan says; states are finite, at length 1 too; neither padding
    nor the cache of decoding changes them; and all gradients are finite. A head of future tokens is
    a last layer beside the last one.
    """
    model = drawn(build(config, V, 1))
    assert sum(p.numel() for p in model.parameters()) == parameters(config, V), "parameters"
    model = model.double().eval()
    source, target = sentences(5, 1, 3), sentences(1, 6, 4, seed=2)
    with torch.no_grad():
        together = model(source, target)
        for i, (S, T) in enumerate(((5, 1), (1, 6), (3, 4))):
            alone = model(source[i : i + 1, :S], target[i : i + 1, :T])[0]
            assert_equal(together[i, :T], alone, "padding")
        target = sentences(6, 6, 6, seed=2)  # a step has no padding
        cache = model.start(source, 1)
        for t in range(target.shape[1]):
            states = model.step(target[:, None, t], cache)[:, 0]
            whole = model(source, target[:, : t + 1])
            assert_equal(states, whole[:, -1], f"cache at token {t}")
        if config.future_tokens:
            check_heads(model, sentences(6, 4, 1))
    model = model.float().train()
    if config.future_tokens:
        contexts = batch_of([[2, 9, 3, EOS, 9, 12, 4], [5, 6, 7, 8]])
        loss, _ = LanguageModel().loss_terms(model, contexts, 0.1)
    else:
        states = model.output_states(model(source, target)[target != 0])
        loss = smoothed_cross_entropy(
            states, model.output_matrix, target[target != 0], 0.1, config.logit_cap, config.z_loss
        )
        loss = loss + model.pop_balance_loss()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert bool(parameter.grad.isfinite().all()), f"gradient of {name}"


def check_heads(model, tokens):
    """Heads see no later token and no padding; one with the weights of the last layer gives what it
    gives, unless states of earlier layers are added after it.
    """
    together = model.read_ahead(tokens)
    assert len(together) == 1 + model.config.future_tokens
    assert_equal(together[0], model.read(tokens), "states beside heads")
    for i, T in enumerate((3, 2, 1)):
        alone = model.read_ahead(tokens[i : i + 1, :T])
        for of_head, expected in zip(together, alone, strict=True):
            assert_equal(of_head[i, :T], expected[0], "a head sees what comes later")
    if model.layer_skips is None or not model.layer_skips.sources[-1]:
        model.future_heads[-1].load_state_dict(model.decoder[-1].state_dict())
        states, *_, of_copy = model.read_ahead(tokens)
        assert_equal(of_copy, states, "a head like the last layer")


def assert_equal(states, expected, what):
    """Equal to nine digits of the largest state."""
    assert bool(expected.isfinite().all()), f"{what}: not finite"
    torch.testing.assert_close(
        states,
        expected,
        rtol=0,
        atol=1e-9 * float(expected.abs().max()),
        msg=lambda m: f"{what}: {m}",
    )


def fault_of(outcome, pair):
    """What is wrong with a configuration or with the message for a pair; None if nothing is."""
    if isinstance(outcome, str):
        names = [name for name, _ in pair]
        is_clear = "\n" not in outcome and any(
            name in outcome or SYMBOLS.get(name, name) in outcome for name in names
        )
        return None if is_clear else f"unclear: {outcome}"
    if not is_bounded(outcome):
        return None
    try:
        check(outcome)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


SYMBOLS = {"n_layers": "N=", "n_heads": "h="}


def main(count=None, seed=1, field=None):
    """Print the faults and how many pairs were combined or refused."""
    models = refused = 0
    faults, messages = [], set()
    for outcome, pair in sweep(count and int(count), int(seed), field):
        fault = fault_of(outcome, pair)
        if isinstance(outcome, str):
            refused += 1
            messages.add(outcome)
        else:
            models += 1
        if fault:
            faults.append(fault)
            print(dict(pair), fault.splitlines()[0][:300], flush=True)
    for message in sorted(messages):
        print("refused:", message)
    print(
        f"{len(pairs_of(values())):,} pairs: {models} models, {refused} refused by {len(messages)} lines, {len(faults)} faults"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(*sys.argv[1:]))
