"""Generated text: the most likely tokens by a plain loop, draws by the model's probabilities,
limits.
"""

import pytest
import torch

from ablate.data.tokenizer import BOS, EOS
from ablate.decoding.generate import NEVER, choose, generate_ids
from tests.tasks.language import small

MIXERS = (
    {},
    {"positional_encoding": "rope", "norm": "rmsnorm", "activation": "swiglu", "n_kv_heads": 1},
    {"positional_encoding": "learned"},
    {"positional_encoding": "alibi"},
    {"positional_encoding": "relative"},
    {"attention": "linear"},
    {"mixer": "lstm", "positional_encoding": "none"},
)


def greedy(model, prompt, count, context):
    """The most likely tokens, by one forward pass over the last `context` tokens for each."""
    tokens = list(prompt)
    for _ in range(count):
        logits = model.logits(model.read(torch.tensor([tokens[-context:]])))[0, -1]
        logits[list(NEVER)] = -torch.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("fields", MIXERS, ids=str)
@pytest.mark.parametrize("prompt", [[BOS], [BOS, 40, 90, 17], [BOS, *range(30, 60)]], ids=len)
def test_greedy_text_is_that_of_a_plain_loop_beyond_the_context(fields, prompt):
    config, model = small(**fields)
    found = list(generate_ids(model, prompt, 30, context=config.context, temperature=0.0))
    assert found == greedy(model, prompt, 30, config.context)
    assert found


def test_the_same_seed_draws_the_same_text_and_another_one_another():
    _, model = small()
    texts = [list(generate_ids(model, [BOS], 20, context=16, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_draws_follow_the_probabilities_at_the_temperature():
    logits = torch.tensor([9.0, 9.0, 9.0, -9.0, 2.0, 1.0, 0.0])  # the first three are never drawn
    random = torch.Generator().manual_seed(1)
    drawn = torch.bincount(
        torch.tensor([choose(logits, 2.0, None, random) for _ in range(4000)]), minlength=7
    )
    weights = torch.tensor([0.0, 0.0, 0.0, -9.0, 2.0, 1.0, 0.0]).div(2.0).exp()
    weights[:3] = 0
    expected = weights / weights.sum()
    assert (drawn / 4000 - expected).abs().max() < 0.03  # four standard errors
    assert drawn[:3].sum() == 0


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 5e-324])
def test_a_temperature_near_0_draws_the_most_likely_token(temperature):
    logits = torch.tensor([9.0, 9.0, 9.0, -9.0, 40.0, 39.0, 0.0])
    assert choose(logits, temperature, None, torch.Generator().manual_seed(1)) == 4


def test_top_k_draws_from_the_most_likely_tokens():
    logits, random = torch.arange(12.0), torch.Generator().manual_seed(1)
    assert {choose(logits, 50.0, 3, random) for _ in range(200)} == {9, 10, 11}
    assert {choose(logits, 1.0, 1, random) for _ in range(5)} == {11}
    assert choose(logits, 0.0, 3, random) == 11


def test_the_end_mark_ends_the_text():
    _, model = small(tied_embeddings="none")
    model.output.weight.zero_()
    model.output.weight[EOS] = 1.0
    states = model.read(torch.tensor([[BOS]]))[0, -1]
    model.output.weight[EOS] = states  # its logit is positive, and all others are 0
    assert list(generate_ids(model, [BOS], 20, context=16, temperature=0.0)) == []
