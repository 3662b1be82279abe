"""Layers are made from their own configurations, and a mechanism sees the input of its sub-layer."""

import ast
from pathlib import Path

import torch

import ablate.model
from ablate.model.attention import FullAttention
from tests.model.small import small_model


def test_a_mechanism_sees_the_input_of_its_sub_layer(monkeypatch):
    seen = []

    def forward(self, Q, K, V, context, plain=FullAttention.forward):
        seen.append((Q, context.x))
        return plain(self, Q, K, V, context)

    monkeypatch.setattr(FullAttention, "forward", forward)
    model = small_model(norm_position="pre")
    model(torch.tensor([[4, 5, 6, 3]]), torch.tensor([[2, 7, 8]]))
    projections = [layer.mixer.W_Q for layer in model.encoder]
    for layer in model.decoder:
        projections += [layer.mixer.W_Q, layer.cross_attention.W_Q]
    assert len(seen) == len(projections) == 6
    for (Q, x), W_Q in zip(seen, projections, strict=True):
        torch.testing.assert_close(W_Q(x), Q.transpose(1, 2).flatten(2))


MAKING = ("__init__", "_make_projections", "add_convolution")  # methods that make modules


def test_no_method_that_computes_compares_the_name_of_a_variant():
    """As docs/architecture.md says: variants are objects, and the builder alone looks them up."""
    found = []
    for path in Path(ablate.model.__file__).parent.glob("*.py"):
        for cls in ast.parse(path.read_text()).body if path.stem != "builder" else ():
            methods = cls.body if isinstance(cls, ast.ClassDef) else []
            for method in methods:
                if isinstance(method, ast.FunctionDef) and method.name not in MAKING:
                    compares = (node for node in ast.walk(method) if isinstance(node, ast.Compare))
                    found += [ast.unparse(node) for node in compares if "'" in ast.unparse(node)]
    assert found == []
