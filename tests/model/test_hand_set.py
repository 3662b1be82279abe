"""Models with weights set by hand that answer every question of a generator: the best possible score
is reached, by the mechanism that is said to need it.
"""

import math

import numpy as np
import pytest
import torch

from ablate.config.resolve import resolve_row
from ablate.config.synthetic_data import SyntheticData
from ablate.data.items import make_items
from ablate.model import build
from ablate.tasks import Synthetic

SURE = 50.0  # a score, or an input of a gate, that leaves no doubt


def data_of(corpus, **settings):
    return SyntheticData.resolve({"corpus": corpus, "test": 300, **settings})


def empty_model(data, d_model, **settings):
    """A model all of whose weights are 0, without norms."""
    config = resolve_row({
        **Synthetic.defaults, "n_layers": 1, "d_ff": 1, "n_heads": 1, "norm_position": "none", "tied_embeddings": "none",
        "embedding_scale": 1, "d_model": d_model, **settings,
    })  # fmt: skip
    model = build(config, data.vocab_size, seed=1).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    return model


def set_ones(matrix, rows, columns, value=1.0):
    """Read the columns into the rows: `y[rows] = value * x[columns]`."""
    matrix[list(rows), list(columns)] = value


def accuracy(model, data, **sizes):
    """Percentage of the answers of the test split that the model ranks first."""
    inputs, targets = make_items(data, "test", **sizes).draw(np.arange(300))
    ranked = model.logits(model.read(torch.from_numpy(inputs))).argmax(-1).numpy()
    return 100 * (ranked == targets)[targets > 0].mean()


def at_distance(mixer, distance, token, position, to):
    """Attention that reads the token so many places before, and writes it to other places."""
    width = len(position)
    sure = SURE * math.sqrt(len(mixer.W_Q.weight))
    set_ones(mixer.W_Q.weight, range(width - distance), position[distance:], sure)
    set_ones(mixer.W_K.weight, range(width), position)
    set_ones(mixer.W_V.weight, range(len(token)), token)
    set_ones(mixer.W_O.weight, to, range(len(token)))


@pytest.mark.parametrize("corpus", ["copy", "reverse"])
def test_one_layer_of_attention_copies_a_length_by_position(corpus):
    data, V, T = data_of(corpus, length=9), 22, 24
    token, position, answer = range(V), range(V, V + T), range(V + T, 2 * V + T)
    model = empty_model(data, 2 * V + T, positional_encoding="learned", max_positions=T)
    set_ones(model.embedding.weight, range(V), token)
    set_ones(model.positions.weight, range(T), position)
    set_ones(model.output.weight, range(V), answer)
    mixer = model.decoder[0].mixer
    at_distance(mixer, 9, token, position, answer)
    if corpus == "reverse":
        assert accuracy(model, data) < 30
        mixer.W_Q.weight.zero_()
        # The answers at the places 9 to 17 stand at 8 to 0.
        asked = [position[place] for place in range(9, 18)]
        set_ones(mixer.W_Q.weight, range(8, -1, -1), asked, SURE * math.sqrt(2 * V + T))
    assert accuracy(model, data) == 100


def test_two_layers_of_attention_are_an_induction_head():
    """The first reads the token before; the second looks for its own token among these (Olsson et
    al., 2022).
    """
    data, V, T = data_of("induction", length=16, symbols=12), 18, 32
    token, position = range(V), range(V, V + T)
    before, answer = range(V + T, 2 * V + T), range(2 * V + T, 3 * V + T)
    model = empty_model(data, 3 * V + T, n_layers=2, positional_encoding="learned", max_positions=T)
    set_ones(model.embedding.weight, range(V), token)
    set_ones(model.positions.weight, range(T), position)
    set_ones(model.output.weight, range(V), answer)
    first, second = (layer.mixer for layer in model.decoder)
    at_distance(first, 1, token, position, before)
    set_ones(second.W_Q.weight, range(V), token, SURE * math.sqrt(3 * V + T))
    set_ones(second.W_K.weight, range(V), before)
    # The first token has none before it, and reads itself.
    second.W_K.weight[:V, position[0]] = -1.0
    set_ones(second.W_V.weight, range(V), token)
    set_ones(second.W_O.weight, answer, range(V))
    assert accuracy(model, data) == 100
    assert accuracy(model, data, size=29) == 100  # T is 31
    first.W_O.weight.zero_()
    assert accuracy(model, data) < 30


def gates(cells, width):
    """Weights of the input (4, d_model, d_model), the state, and biases (4, d_model), in torch's
    order: input gate, forget gate, candidate, output gate; the output gate is open.
    """
    cells.bias_ih_l0[3 * width :] = SURE
    return (
        cells.weight_ih_l0.view(4, width, width),
        cells.weight_hh_l0.view(4, width, width),
        cells.bias_hh_l0.view(4, width),
    )


def test_an_lstm_copies_a_length_as_a_delay_line():
    data, length = data_of("copy", length=7, symbols=5), 7
    V = data.vocab_size
    width = V * (length + 1)
    model = empty_model(data, width, mixer="lstm", positional_encoding="none")
    set_ones(model.embedding.weight, range(V), range(V))
    set_ones(model.output.weight, range(V), range(width - V, width))
    of_input, of_state, bias = gates(model.decoder[0].mixer.cells, width)
    bias[0], bias[1] = SURE, -SURE  # each cell forgets, and takes the one before it
    set_ones(of_input[2], range(V), range(V), SURE)
    set_ones(of_state[2], range(V, width), range(width - V), SURE)
    assert accuracy(model, data) == 100
    assert accuracy(model, data, size=8) < 40


def test_an_lstm_flips_its_state_for_parity_at_any_length():
    """One cell, near 1 after an odd number of ones and near -1 or 0 after an even one."""
    data, zero, one, cell = data_of("parity", length=16), 0, 1, 2
    model = empty_model(data, 4, mixer="lstm", positional_encoding="none", max_positions=1000)
    set_ones(model.embedding.weight, (4, 5), (zero, one))
    of_input, of_state, _ = gates(model.decoder[0].mixer.cells, 4)
    of_input[0][cell, [zero, one]] = torch.tensor([-SURE, SURE])  # a one writes
    of_input[1][cell, [zero, one]] = torch.tensor([SURE, -SURE])  # a zero keeps
    of_input[2][cell, [zero, one]] = SURE / 3
    of_state[2][cell, cell] = -SURE
    model.output.weight[4, [zero, one]] = 0.3
    model.output.weight[5, cell] = 1.0
    assert accuracy(model, data) == 100
    assert accuracy(model, data, size=1000) == 100
