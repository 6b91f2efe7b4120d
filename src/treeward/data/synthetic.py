"""A made-up catalogue with a structure worth finding: topics, subtopics, and titles that speak of them."""

import numpy as np

from treeward.core import rng
from treeward.core.checks import integer
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


def synthetic_catalogue(items: int = 100_000, dim: int = 32, seed: int = 0) -> Catalogue:
    """Return a catalogue of 20 topics and 1,000 subtopics whose vectors, titles and categories agree.

    Vectors are a two-level Gaussian mixture: topics at unit spread, subtopics 0.5 around them, items 0.3 around those.
    Topic sizes fall off like 1 / rank ** 0.5.

    Examples
    --------
    >>> shop = synthetic_catalogue(1_000, dim=8, seed=1)
    >>> shop
    Catalogue(1,000 items x 8 dimensions, columns ['id', 'title', 'category'])
    """
    integer("synthetic_catalogue", "items", items, low=1)
    integer("synthetic_catalogue", "dim", dim, low=1)
    integer("synthetic_catalogue", "seed", seed, low=0)
    words = [text.split() for text in TOPICS.values()]
    weight = 1 / np.arange(1, len(TOPICS) + 1) ** 0.5
    edges = np.cumsum(weight) / weight.sum()
    topic = np.searchsorted(edges, rng.uniforms(seed, rng.stream("topic"), items), side="right")
    topic = np.minimum(topic, len(TOPICS) - 1)
    sub = topic * _SUBTOPICS + (rng.uniforms(seed, rng.stream("sub"), items) * _SUBTOPICS).astype(np.int64)

    def spread(name: str, count: int, scale: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return scale * rng.normals(seed, rng.stream(name), count * dim).reshape(count, dim)

    centres = np.repeat(spread("topics", len(TOPICS), 1.0), _SUBTOPICS, axis=0)
    centres += spread("subtopics", len(centres), 0.5)
    vectors = (centres[sub] + spread("items", items, 0.3)).astype(np.float32)

    own = [
        rng.sample(seed, rng.stream("words", i), len(words[i // _SUBTOPICS]), _WORDS_EACH) for i in range(len(centres))
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
