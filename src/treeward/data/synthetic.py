"""A synthetic catalogue with structure: topics, subtopics, and titles made of their words."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.checks import flag, integer
from treeward.data.catalogue import Catalogue

TOPICS = {
    "Astronomy": "telescope comet nebula eclipse orbit planet galaxy meteor star-map lunar",
    "Baking": "sourdough rye croissant brioche oven yeast flour pretzel bagel crust",
    "Birds": "heron falcon owl finch nest feeder plumage warbler migration kestrel",
    "Board games": "chess dice strategy cards tile puzzle dungeon trivia pawn co-op",
    "Camping": "tent lantern sleeping-bag stove hammock campfire tarp cooler headlamp tarpaulin",
    "Chess": "opening endgame gambit rook bishop checkmate clock tournament notation sacrifice",
    "Coffee": "espresso roast grinder filter arabica latte crema kettle barista cold-brew",
    "Cycling": "gravel derailleur saddle peloton helmet spoke climb tubeless sprint panniers",
    "Drawing": "charcoal sketch portrait perspective ink watercolour easel pastel anatomy shading",
    "Gardening": "tomato compost pruning seedling trellis dahlia mulch greenhouse orchard lavender",
    "Guitar": "fretboard acoustic riff pedal chord strings amplifier blues capo luthier",
    "History": "empire medieval treaty archive revolution castle dynasty viking excavation manuscript",
    "Knitting": "wool cable sweater needle lace cardigan yarn merino crochet mittens",
    "Photography": "lens tripod aperture darkroom landscape shutter film flash bokeh macro",
    "Pottery": "glaze kiln stoneware wheel porcelain bowl slip raku teapot clay",
    "Running": "marathon trail interval cadence ultra shoes pacing hill 10k stride",
    "Sailing": "keel spinnaker regatta anchor dinghy tide rigging harbour tiller catamaran",
    "Science fiction": "android starship colony wormhole dystopia terraforming cyborg alien hyperspace cryosleep",
    "Swimming": "freestyle butterfly goggles lane backstroke open-water relay pool kickboard turn",
    "Woodwork": "chisel dovetail walnut plane lathe joinery bandsaw oak varnish workbench",
}
_GENERIC = (
    "guide",
    "set",
    "kit",
    "course",
    "handbook",
    "classic",
    "new",
    "small",
    "of",
    "the",
    "for",
    "with",
    "and",
    "in",
)
_SUBTOPICS = 50
_WORDS_EACH = 3
_FAMILY = 20


class _Shape(NamedTuple):
    """Standard deviations per direction of a catalogue's vectors, level by level, and how unequal its topics are."""

    centre: float
    """The mean of all items."""
    topics: float
    subtopics: float
    families: float
    """Groups of about 20 items within a subtopic."""
    items: float
    lean: float
    """In direction k, topics and subtopics differ by 1 / k ** lean of their difference in the first direction."""
    topic_sizes: float
    """Sizes fall like 1 / rank to this power."""
    subtopic_sizes: float


_TIGHT = _Shape(0.0, 1.0, 0.5, 0.0, 0.3, lean=0.0, topic_sizes=0.5, subtopic_sizes=0.0)
_LOOSE = _Shape(0.2, 0.45, 0.2, 0.6, 0.6, lean=0.5, topic_sizes=1.0, subtopic_sizes=0.5)


def synthetic_catalogue(items: int = 100_000, dim: int = 32, seed: int = 0, *, loose: bool = False) -> Catalogue:
    """Return a catalogue of 20 topics and 1,000 subtopics whose vectors, titles and categories agree.

    Parameters
    ----------
    items, dim, seed
        Number of items, dimension of their vectors, and the seed.
    loose
        False: topics are tight, and a tree of them is easy to read. Vectors are a two-level Gaussian mixture: topics
        at unit spread, subtopics 0.5 around them, items 0.3 around those; topic sizes fall off like 1 / rank ** 0.5.
        True: as loose as the item vectors of public logs, where the means of a tree's coarse nodes explain a quarter
        of the variance and its leaves three fifths (`World.synthetic` uses it). Topics differ by 0.45 and subtopics by
        0.2, in the first directions more than in the last; families of about 20 items differ by 0.6, and so do items
        of a family. Topic sizes fall off like 1 / rank, subtopic sizes like 1 / rank ** 0.5.

    Examples
    --------
    >>> shop = synthetic_catalogue(1_000, dim=8, seed=1)
    >>> shop
    Catalogue(1,000 items x 8 dimensions, columns ['id', 'title', 'category'])
    """
    integer("synthetic_catalogue", "items", items, low=1)
    integer("synthetic_catalogue", "dim", dim, low=1)
    integer("synthetic_catalogue", "seed", seed, low=0)
    shape = _LOOSE if flag("synthetic_catalogue", "loose", loose) else _TIGHT
    words = [text.split() for text in TOPICS.values()]
    topic = _ranked(seed, "topic", items, len(TOPICS), shape.topic_sizes)
    sub = topic * _SUBTOPICS + _ranked(seed, "sub", items, _SUBTOPICS, shape.subtopic_sizes)
    vectors = _vectors(shape, topic, sub, dim, seed)

    own = [
        rng.sample(seed, rng.stream("words", i), len(words[i // _SUBTOPICS]), _WORDS_EACH)
        for i in range(len(TOPICS) * _SUBTOPICS)
    ]
    picks = rng.uniforms(seed, rng.stream("titles"), 3 * items).reshape(items, 3)
    names = list(TOPICS)
    titles, categories = [], []
    for t, s, (first, second, third) in zip(topic.tolist(), sub.tolist(), picks.tolist(), strict=True):
        mine = [words[t][index] for index in own[s]]
        lead, tail = mine[int(first * _WORDS_EACH)], words[t][int(third * len(words[t]))]
        titles.append(f"{lead.capitalize()} {_GENERIC[int(second * len(_GENERIC))]} {tail}")
        categories.append(f"{names[t]} > {mine[0].capitalize()}")
    return Catalogue(np.arange(items), vectors, titles=titles, categories=categories)


def _ranked(seed: int, name: str, items: int, count: int, power: float) -> NDArray[np.int64]:
    """Return one of `count` groups per item, of sizes that fall off like 1 / rank ** power."""
    weight = 1 / np.arange(1, count + 1) ** power
    edges = np.cumsum(weight) / weight.sum()
    drawn = np.searchsorted(edges, rng.uniforms(seed, rng.stream(name), items), side="right")
    return np.minimum(drawn, count - 1)


def _vectors(
    shape: _Shape, topic: NDArray[np.int64], sub: NDArray[np.int64], dim: int, seed: int
) -> NDArray[np.float32]:
    def spread(name: str, count: int, scale: float) -> NDArray[np.float64]:
        return scale * rng.normals(seed, rng.stream(name), count * dim).reshape(count, dim)

    items, subtopics = len(sub), len(TOPICS) * _SUBTOPICS
    lean = np.arange(1, dim + 1) ** -shape.lean
    lean /= (lean**2).mean() ** 0.5
    centres = np.repeat(spread("topics", len(TOPICS), shape.topics), _SUBTOPICS, axis=0)
    centres = lean * (centres + spread("subtopics", subtopics, shape.subtopics))
    if shape.centre:
        centres += spread("centre", 1, shape.centre)
    vectors = centres[sub] + spread("items", items, shape.items)
    if shape.families:
        # Subtopics are few in a large catalogue, and real ones have structure down to a few items.
        each = max(1, round(items / (subtopics * _FAMILY)))
        family = sub * each + (rng.uniforms(seed, rng.stream("family"), items) * each).astype(np.int64)
        vectors += spread("families", subtopics * each, shape.families)[family]
    return vectors.astype(np.float32)
