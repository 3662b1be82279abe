"""The embeddings, added again before a layer."""

import torch

from tests.model.small import sentences, small_model

ONE_STACK = {"architecture": "decoder-only", "norm_position": "none", "positional_encoding": "none"}


def test_the_stream_and_the_embeddings_are_added_by_two_numbers():
    """Layers whose sub-layers put out zero leave a polynomial of the two numbers."""
    model = small_model(**ONE_STACK, embedding_skip=True, output_initialization="zero")
    for layer in model.decoder:
        layer.feed_forward.W_2.bias.data.zero_()
        layer.skip.shares.data = torch.tensor([0.5, 0.25])
    tokens = sentences(5)
    embedded = model.embedding(tokens)
    # x -> 0.5 x + 0.25 x0, twice.
    torch.testing.assert_close(model.read(tokens), (0.5 * (0.5 + 0.25) + 0.25) * embedded)


def test_it_begins_as_no_skip():
    tokens = sentences(5)
    plain = small_model(**ONE_STACK)
    skipping = small_model(**ONE_STACK, embedding_skip=True)
    for layer in skipping.decoder:
        layer.skip.shares.data = torch.tensor([1.0, 0.0])  # without the noise of small_model
    skipping.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(skipping.read(tokens), plain.read(tokens))
