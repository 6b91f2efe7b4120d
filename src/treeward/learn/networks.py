"""How a history of clicks becomes a vector: the networks, and what each is trained to foresee.

A network takes (batch, length, dim) vectors of clicks, filled up at the end, with their lengths, and returns a state at
every place. Only `network` is for others; classes are made where torch is at hand.
"""

from typing import Any, NamedTuple

KINDS = ("linear", "gru", "transformer")
"""By name: the mean of the clicks through one matrix, a gated recurrent unit, and a two-way encoder."""

_HEADS, _LAYERS = 2, 2
_DROPOUT, _MORE = 0.2, 0.5
# With less than _MORE, the encoder knows its training users by heart after three passes.


class Network(NamedTuple):
    """A module and how it is asked."""

    module: Any
    masked: bool
    """Whether it is trained to fill gaps, from both sides (BERT4Rec), and asked with one at the end; otherwise it is
    trained to foresee the next click at every place."""


def network(torch: Any, kind: str, dim: int, window: int) -> Network:
    """Return a new network of a kind; its first weights come from torch's generator."""
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
            places = torch.arange(1, clicks.shape[1] + 1, device=clicks.device)
            return self.mix(clicks.cumsum(1) / places[:, None])

    return Linear()


def _gru(torch: Any, dim: int) -> Any:
    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        """A gated recurrent unit whose hidden state is as long as a vector."""

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
        """Every click sees all others; places are counted from the end."""

        def __init__(self) -> None:
            super().__init__()
            self.places = torch.nn.Parameter(0.02 * torch.randn(most, dim))
            layer = torch.nn.TransformerEncoderLayer(
                dim, _HEADS if dim % _HEADS == 0 else 1, 4 * dim, _MORE, "gelu", batch_first=True, norm_first=True
            )
            self.layers = torch.nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
            self.drop = torch.nn.Dropout(_MORE)
            self.out = torch.nn.Linear(dim, dim)

        def forward(self, clicks: Any, lengths: Any) -> Any:
            steps = torch.arange(clicks.shape[1], device=clicks.device)
            rows_of = torch.nn.functional.embedding  # whose gradient is summed in order, unlike that of indexing
            back = (lengths[:, None] - 1 - steps).clamp(min=0)
            beyond = steps >= lengths[:, None]
            return self.out(self.layers(self.drop(clicks + rows_of(back, self.places)), src_key_padding_mask=beyond))

    return Encoder()
