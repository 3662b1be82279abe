"""Facts about the mixers of a layer: rules, numbers of parameters and multiplications, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ablate.errors import Fault
from ablate.parts import attention
from ablate.parts.attention import ATTENTIONS, CONVOLUTION_WIDTH, AttentionFields
from ablate.parts.cost import BYTES, Cost, Tensors, Workload, matrix_cost
from ablate.parts.positions import rotation_fault
from ablate.parts.sizes import Sizes
from ablate.parts.variant import Variant

RECURRENCE_CHUNK = 64  # tokens in a chunk of a recurrence with one decay for each head
# The chunk of a recurrence with a decay for each row of its state, which is halved this often.
VECTOR_HALVINGS = 4
VECTOR_CHUNK = 2**VECTOR_HALVINGS


@dataclass(frozen=True)
class MixerVariant(Variant):
    """Facts about self-attention, which are also assumed of a user's mixer. The class of a mixer
    takes (config, causal, init).

    Methods take `c`, the configuration of the layer.

    may_attend: whether the mixer is self-attention, or may contain it. Then the fields of
        attention, positional encodings inside attention, and document masks may have an effect.
    reads_both_ways: whether the mixer works in an encoder.
    has_heads: whether it has h heads of the sizes d_k and d_v.
    """

    may_attend: bool = True
    reads_both_ways: bool = False
    has_heads: bool = False

    def fault(self, c: AttentionFields, name: str) -> Fault | None:
        """Why a configuration cannot have the mixer with this name; None if it can."""
        return None

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Number of weights in the matrices of a mixer that replaces self-attention."""
        return 0

    def cost(self, c: AttentionFields, work: Workload, vocab_size: int) -> Cost:
        """Cost of the mixer of a layer."""
        return attention.cost(c, work, vocab_size)

    def activation_bytes(self, c: AttentionFields, tensors: Tensors) -> int:
        """Bytes per token that the backward pass of the mixer needs."""
        activations = ATTENTIONS[c.attention].activations
        if activations is None:
            return attention.activation_bytes(c, c.n_heads, tensors)
        numbers = activations(c, tensors.causal, tensors.length)
        return tensors.operand_bytes * c.d_model + BYTES * numbers


@dataclass(frozen=True)
class Replacement(MixerVariant):
    """Facts about a mixer that replaces self-attention. A subclass counts its numbers.

    The counts of activations and multiplications were read from the classes in ablate/model/;
    tests/config/test_memory.py and test_cost.py compare them with measurements.
    """

    may_attend: bool = False

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Number of weights in matrices, each applied once to each token; Muon updates them."""
        raise NotImplementedError

    def _vectors(self, c: Sizes) -> int:
        """Number of other trained parameters, such as biases and convolutions."""
        raise NotImplementedError

    def _other_multiplications(self, c: Sizes) -> int:
        """Number of multiplications per token outside of the matrices, such as with the state."""
        return 0

    def _activations(self, c: Sizes, causal: bool) -> int:
        """Number of fp32 values per token that the backward pass needs."""
        raise NotImplementedError

    def cost(self, c: AttentionFields, work: Workload, vocab_size: int) -> Cost:
        """Cost of the mixer of a layer."""
        others = Cost(
            other_parameters=self._vectors(c),
            multiplications=self._other_multiplications(c) * work.tokens,
        )
        return matrix_cost(self.matrices(c, work.causal), work) + others

    def activation_bytes(self, c: AttentionFields, tensors: Tensors) -> int:
        """Bytes per token that the backward pass of the mixer needs."""
        return BYTES * self._activations(c, tensors.causal)


@dataclass(frozen=True)
class TorchRnn(Replacement):
    """A recurrent network of torch.

    gates: number of gates, the candidate state included; each has the width of the network.
    stored: fp32 values per token that the backward pass needs in an encoder, whose batches are
        packed, as a multiple of d_model: inputs, outputs, gates and states.
    stored_causal: the same multiple in a causal stack, where oneDNN needs a larger workspace;
        measured at d_model 48 to 512.
    """

    reads_both_ways: bool = True
    gates: int = 0
    stored: int = 0
    stored_causal: int = 0

    def fault(self, c: AttentionFields, name: str) -> Fault | None:
        """The fault of an odd d_model, of which each direction has half."""
        if c.has_encoder and c.d_model % 2:
            return Fault(
                f"d_model={c.d_model} is odd, and in the encoder each direction of mixer={name} "
                "has half of d_model",
                ("d_model", "mixer"),
            )
        return None

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Weights over input and state. A causal network has one direction of width d_model, and an
        encoder has two directions of width d_model / 2.
        """
        width = c.d_model if causal else c.d_model // 2
        return self.gates * c.d_model * (c.d_model + width)

    def _vectors(self, c: Sizes) -> int:
        return 2 * self.gates * c.d_model

    def _activations(self, c: Sizes, causal: bool) -> int:
        return (self.stored_causal if causal else self.stored) * c.d_model


@dataclass(frozen=True)
class ChannelMixer(Replacement):
    """A mixer of channels, without heads. All its numbers are multiples of a power of d_model.

    n_matrices: number of square matrices of d_model.
    n_vectors, n_multiplications, n_activations: multiples of d_model.
    """

    n_matrices: int = 0
    n_vectors: int = 0
    n_multiplications: int = 0
    n_activations: int = 0

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Weights of square matrices."""
        return self.n_matrices * c.d_model**2

    def _vectors(self, c: Sizes) -> int:
        return self.n_vectors * c.d_model

    def _other_multiplications(self, c: Sizes) -> int:
        return self.n_multiplications * c.d_model

    def _activations(self, c: Sizes, causal: bool) -> int:
        return self.n_activations * c.d_model


@dataclass(frozen=True)
class LinearRecurrence(Replacement):
    """A mixer with a matrix as its state; see ablate/model/recurrent_mixers.py.

    is_gated: whether its output has a gate.
    has_convolutions: whether queries, keys and values pass through a short convolution.
    shares_keys: whether all heads share queries and keys.
    head_scalars: number of projections to one number for each head.
    decay_rank: rank of the projection to a decay for each row of the state; 0: no such projection.
    uses_delta_rule: whether the state is updated by the delta rule.
    other_vectors: number of parameters outside of projections and convolutions.
    """

    has_heads: bool = True
    is_gated: bool = False
    has_convolutions: bool = False
    shares_keys: bool = False
    head_scalars: int = 0
    decay_rank: int = 0
    uses_delta_rule: bool = False
    other_vectors: Callable[[Sizes], int] = lambda c: 0

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Weights of all projections."""
        n_values = 3 if self.is_gated else 2  # values, output, gate
        width = 2 * self._key_width(c) + n_values * c.n_heads * c.d_v
        width += self.head_scalars * c.n_heads
        return c.d_model * width + self.decay_rank * (c.d_model + self._key_width(c))

    def _vectors(self, c: Sizes) -> int:
        return self._kernels(c) + self.other_vectors(c)

    def _other_multiplications(self, c: Sizes) -> int:
        # Each token is multiplied with half of its chunk on average: keys with queries and weights
        # with values; under the delta rule, also keys with keys and weights with old values.
        chunk = VECTOR_CHUNK if self.decay_rank else RECURRENCE_CHUNK
        products = 4 if self.uses_delta_rule else 2
        pairs = chunk * (c.d_k + c.d_v) * products // 2
        # The state is read and written; the delta rule also reads the old value of a key.
        accesses = 3 if self.uses_delta_rule else 2
        return self._kernels(c) + c.n_heads * (pairs + accesses * c.d_k * c.d_v)

    def _activations(self, c: Sizes, causal: bool) -> int:
        # With a decay for each row: both factors of the products, for each halving of a chunk.
        chunk = VECTOR_HALVINGS * c.d_k if self.decay_rank else RECURRENCE_CHUNK
        products = 4 if self.uses_delta_rule else 2
        values = 10 if self.is_gated else 7
        return 2 * c.d_model + c.n_heads * (12 * c.d_k + values * c.d_v + products * chunk)

    def _key_width(self, c: Sizes) -> int:
        return c.d_k if self.shares_keys else c.n_heads * c.d_k

    def _kernels(self, c: Sizes) -> int:
        """Number of parameters in the kernels of the convolutions."""
        channels = 2 * self._key_width(c) + c.n_heads * c.d_v
        return CONVOLUTION_WIDTH * channels if self.has_convolutions else 0


@dataclass(frozen=True)
class Retention(LinearRecurrence):
    """Retention, which rotates queries and keys."""

    def fault(self, c: AttentionFields, name: str) -> Fault | None:
        """The fault of an odd d_k, or of a rotation that does not fit."""
        if c.d_k % 2:
            return Fault(
                f"d_k={c.d_k} is odd, and retention rotates pairs of a head's entries",
                ("d_k", "n_heads", "d_model", "mixer"),
            )
        return rotation_fault(c) if c.positional_encoding == "rope" else None


@dataclass(frozen=True)
class RGLRU(Replacement):
    """The recurrence of Griffin, with a vector as its state and a square block for each head."""

    has_heads: bool = True

    def fault(self, c: AttentionFields, name: str) -> Fault | None:
        """The fault of blocks that are not square."""
        if c.d_k != c.d_v:
            return Fault(
                f"mixer=rg_lru has square blocks, so d_k={c.d_k} must equal d_v={c.d_v}",
                ("mixer", "d_k", "d_v"),
            )
        return None

    def matrices(self, c: Sizes, causal: bool) -> int:
        """Weights of the projections to the recurrence and to its gate, and of the output."""
        return 3 * c.d_model * c.n_heads * c.d_v

    def _vectors(self, c: Sizes) -> int:
        # Kernel of the convolution, blocks of the two gates, decays, and all biases.
        return (CONVOLUTION_WIDTH + 2 * c.d_v + 6) * c.n_heads * c.d_v + c.d_model

    def _other_multiplications(self, c: Sizes) -> int:
        return (2 * c.d_v + CONVOLUTION_WIDTH + 5) * c.n_heads * c.d_v

    def _activations(self, c: Sizes, causal: bool) -> int:
        return c.d_model + 21 * c.n_heads * c.d_v
