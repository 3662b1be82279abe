"""CUDA graphs by shape: the kernels of a model's passes are recorded once for each shape, and then
launched together.

Where a model is small, the host launches kernels more slowly than a GPU runs them. Graphs are made
of the two passes between token ids and states, whose shapes come back in every epoch. The loss
stays outside, because batches of one shape differ in their number of target tokens; so does the
optimizer's step, whose learning rate changes. No number of the host is therefore part of a graph. A
graph runs the kernels of the steps before it, with the same dropout masks, so weights are the same
with and without graphs.

The passes have not run as graphs on a GPU yet; see docs/gpu.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from ablate.kernels.device import is_out_of_memory
from ablate.model import Transformer

Outputs = list[Tensor | None]
Recorder = Callable[[Callable[[], Outputs]], tuple[Outputs, Callable[[], None]]]
Shape = tuple[object, ...]

# steps with a shape until it is recorded, because most shapes of a large corpus never come back
MEETINGS = 2
MAX_SHAPES = (
    256  # Multi30k has 135 in batches of 4096 tokens. Each takes the memory of the gradients.
)
_CALLS = ("forward", "read")  # of Transformer, from token ids to states


class StepGraphs:
    """Runs the passes of a model as graphs, where their shape has been met before.

    When there are as many graphs as allowed, no other shape gets one. Replacing the least recently
    used one would be
    worse: an epoch goes through all shapes, so the one to come is among those replaced.

    Attributes:
        shapes: that have graphs.
        replayed, batches: number of batches that went through graphs, and of all.
    """

    def __init__(
        self,
        model: Transformer,
        parameters: Sequence[nn.Parameter],
        autocast: Callable[[], AbstractContextManager[object]],
        recorder: Recorder,
        log: logging.Logger,
        max_shapes: int = MAX_SHAPES,
    ) -> None:
        """Begin without graphs.

        Args:
            model: whose calls are replaced during steps.
            parameters: all of them.
            autocast: the context of forward passes.
            recorder: records a function without executing it. Returns the tensors of the function's
                results, and a function that executes it, from the same inputs in memory into these
                tensors.
            log: receives a line if graphs are not used.
            max_shapes: that get graphs.
        """
        self.model, self.parameters, self.autocast, self.recorder = (
            model,
            parameters,
            autocast,
            recorder,
        )
        self.log, self.max_shapes = log, max_shapes
        self.shapes: dict[Shape, _Passes] = {}
        self.replayed = self.batches = 0
        self._meetings: Counter[Shape] = Counter()
        self._logged: set[str] = set()
        self._call: tuple[Shape, Sequence[Tensor], Tensor, Tensor] | None = None
        self._due: tuple[Shape, _Passes] | None = None

    @contextmanager
    def step(self, whole: bool) -> Iterator[None]:
        """Context in which the loss of a batch and its gradients are computed; at its end the
        gradients are complete.

        The model is cut at its states: it returns a tensor that gradients stop at, and goes on from
        there at the end.

        Args:
            whole: whether the batch is all of the step. The gradients of several batches would have
                to be added.
        """
        self.batches += 1
        if not whole:
            self._log_once(
                "CUDA graphs are not used for a batch that is divided into micro-batches"
            )
            yield
            return
        self._record()
        for name in _CALLS:
            setattr(self.model, name, partial(self._states, name))
        try:
            yield
            self._go_on()
        finally:
            self._call = None
            for name in _CALLS:
                delattr(self.model, name)

    @property
    def summary(self) -> str:
        """The use of the graphs, as a log line."""
        return (
            f"CUDA graphs of {len(self.shapes)} shapes ran {self.replayed} of {self.batches} "
            f"batches"
        )

    def _states(self, name: str, *tokens: Tensor) -> Tensor:
        """A call of the model: token ids -> states that gradients stop at."""
        assert self._call is None, "the model is called twice in a step"
        shape = (name, *(each.shape for each in tokens))
        passes = self.shapes.get(shape)
        states = self._model_call(name)(*tokens) if passes is None else passes.forward(tokens)
        cut = states.detach().requires_grad_()
        self._call = shape, tokens, states, cut
        return cut

    def _go_on(self) -> None:
        """The backward pass from the states."""
        assert self._call is not None, "the model is not called in a step"
        shape, tokens, states, cut = self._call
        assert cut.grad is not None
        # The output matrix has its gradient already. Autograd sums it with that of the embeddings
        # in this order.
        shared = [parameter for parameter in self.parameters if parameter.grad is not None]
        gradients = [
            cut.grad,
            *(gradient for gradient in _take_gradients(shared) if gradient is not None),
        ]
        if shape in self.shapes:
            self.replayed += 1
            self.shapes[shape].backward(gradients)
            return
        torch.autograd.backward([states, *shared], gradients)
        self._meetings[shape] += 1
        if self._meetings[shape] == MEETINGS and len(self.shapes) < self.max_shapes:
            call = self._model_call(str(shape[0]))
            self._due = (
                shape,
                _Passes(call, tokens, self.parameters, shared, gradients, self.autocast),
            )

    def _record(self) -> None:
        """Record the passes of the step before, whose tensors are gone now.

        As long as they live, autograd adds gradients on the stream of that step, which is not the
        one that is recorded.
        """
        if self._due is None:
            return
        (shape, passes), self._due = self._due, None
        try:
            passes.record(self.recorder)
            self.shapes[shape] = passes
        except RuntimeError as error:  # the shape goes on without a graph
            reason = "out of memory" if is_out_of_memory(error) else str(error).partition("\n")[0]
            self._log_once(f"no CUDA graph for a shape: {reason}")
            _take_gradients(self.parameters)

    def _model_call(self, name: str) -> Callable[..., Tensor]:
        """The call of the model that `step` replaces."""
        return partial(getattr(type(self.model), name), self.model)

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            self.log.warning(line)


class _Passes:
    """The passes of one shape. Their inputs and results keep their addresses from step to step."""

    def __init__(
        self,
        call: Callable[..., Tensor],
        tokens: Sequence[Tensor],
        parameters: Sequence[nn.Parameter],
        shared: list[nn.Parameter],
        gradients: Sequence[Tensor],
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Copy the inputs: token ids, and the gradients of states and of `shared` parameters that
        the loss gives.
        """
        self.call, self.parameters, self.shared, self.autocast = call, parameters, shared, autocast
        self.tokens, self.gradients = (
            [each.clone() for each in inputs] for inputs in (tokens, gradients)
        )
        self.end: Tensor | None = None  # the states, with autograd's record between the passes

    def record(self, recorder: Recorder) -> None:
        """Record both passes. Gradients must be unset, so that the recorded ones replace others and
        are not added.
        """
        (self.states,), self.run_forward = recorder(self._forward)
        self.found, self.run_backward = recorder(self._backward)

    def forward(self, tokens: Sequence[Tensor]) -> Tensor:
        """Token ids -> states, valid until the next step."""
        _copy(tokens, self.tokens)
        self.run_forward()
        assert self.states is not None
        return self.states

    def backward(self, gradients: Sequence[Tensor]) -> None:
        """Set the gradients of all parameters."""
        _copy(gradients, self.gradients)
        self.run_backward()
        for parameter, gradient in zip(self.parameters, self.found, strict=True):
            parameter.grad = gradient

    def _forward(self) -> Outputs:
        # With a context of its own: a weight that autocast has converted before would not be
        # converted in the graph.
        with self.autocast():
            self.end = self.call(*self.tokens)
        return [self.end.detach()]

    def _backward(self) -> Outputs:
        assert self.end is not None
        torch.autograd.backward([self.end, *self.shared], self.gradients)
        self.end = None
        return _take_gradients(self.parameters)


def _take_gradients(parameters: Sequence[nn.Parameter]) -> Outputs:
    """The gradients of parameters, which have none afterwards."""
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
