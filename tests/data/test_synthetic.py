"""The synthetic catalogue."""

import numpy as np

from tests.data.test_catalogue import same
from treeward.data.synthetic import TOPICS, synthetic_catalogue


def test_synthetic_is_reproducible_and_coherent():
    one, again, other = (synthetic_catalogue(400, 8, seed) for seed in (1, 1, 2))
    same(one, again)
    assert not np.array_equal(one.vectors, other.vectors)
    topics = one.categories.str.split(" > ").list.first()
    assert set(topics) <= set(TOPICS)
    centres = {topic: one.vectors[(topics == topic).to_numpy()].mean(axis=0) for topic in topics.unique()}
    names = list(centres)
    distance = np.linalg.norm(one.vectors[:, None] - np.stack(list(centres.values())), axis=2)
    assert np.mean([names[best] == topic for best, topic in zip(distance.argmin(axis=1), topics, strict=True)]) > 0.9
