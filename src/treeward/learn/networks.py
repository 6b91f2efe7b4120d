"""Networks that turn a history of clicks into a vector.

A network takes (batch, length, dim) vectors of clicks, padded at the end, and their lengths. It returns a state at
every position. Classes are defined inside functions, because torch is imported late.
"""

from typing import Any, NamedTuple

KINDS = ("linear", "gru", "transformer")
"""The mean of the clicks through one matrix, a gated recurrent unit, and a bidirectional encoder."""

_HEADS, _LAYERS = 2, 2
_DROPOUT = 0.2
_STRONG_DROPOUT = 0.5  # with less, the encoder has memorised its training users after three passes


class Network(NamedTuple):
    """A torch module and how it is trained."""

    module: Any
    masked: bool
    """True: trained to fill gaps from both sides (BERT4Rec), and queried with a gap at the end. False: trained to
    predict the next click at every position."""


def network(torch: Any, kind: str, dim: int, window: int) -> Network:
    """Return a new network; its initial weights come from torch's generator."""
    if kind == "linear":
        return Network(_linear(torch, dim), masked=False)
    if kind == "gru":
        return Network(_gru(torch, dim), masked=False)
    return Network(_transformer(torch, dim, window + 1), masked=True)


def _linear(torch: Any, dim: int) -> Any:
    class Linear(torch.nn.Module):  # type: ignore[misc]
        """The mean of all clicks so far, through a matrix."""

        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(dim, dim)
            torch.nn.init.eye_(self.mix.weight)
            torch.nn.init.zeros_(self.mix.bias)

        def forward(self, clicks: Any, lengths: Any) -> Any:
            counts = torch.arange(1, clicks.shape[1] + 1, device=clicks.device)
            return self.mix(clicks.cumsum(1) / counts[:, None])

    return Linear()


def _gru(torch: Any, dim: int) -> Any:
    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        """A gated recurrent unit whose hidden state is as long as an item's vector."""

        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRU(dim, dim, batch_first=True)
            self.drop = torch.nn.Dropout(_DROPOUT)

        def forward(self, clicks: Any, lengths: Any) -> Any:
            states, _ = self.cell(self.drop(clicks))
            return states

    return Recurrent()


def _transformer(torch: Any, dim: int, most: int) -> Any:
    class Encoder(torch.nn.Module):  # type: ignore[misc]
        """Every click attends to all others; positions are counted from the end."""

        def __init__(self) -> None:
            super().__init__()
            self.positions = torch.nn.Parameter(0.02 * torch.randn(most, dim))
            heads = _HEADS if dim % _HEADS == 0 else 1
            layer = torch.nn.TransformerEncoderLayer(
                dim, heads, 4 * dim, _STRONG_DROPOUT, "gelu", batch_first=True, norm_first=True
            )
            self.layers = torch.nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
            self.drop = torch.nn.Dropout(_STRONG_DROPOUT)
            self.out = torch.nn.Linear(dim, dim)

        def forward(self, clicks: Any, lengths: Any) -> Any:
            steps = torch.arange(clicks.shape[1], device=clicks.device)
            rows_of = torch.nn.functional.embedding  # its gradient is summed in order, unlike that of indexing
            back = (lengths[:, None] - 1 - steps).clamp(min=0)
            states = self.drop(clicks + rows_of(back, self.positions))
            return self.out(self.layers(states, src_key_padding_mask=steps >= lengths[:, None]))

    return Encoder()
