"""Slow, obvious twins of what the package computes, in plain Python and float64."""

import math
from collections import Counter

import numpy as np


def philox(seed: int, stream: int, counter: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 on Python's big integers."""
    low = 2**32 - 1
    block = [counter & low, counter >> 32, stream & low, stream >> 32]
    key = [seed & low, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * block[0], 0xCD9E8D57 * block[2]
        block = [(second >> 32) ^ block[1] ^ key[0], second & low, (first >> 32) ^ block[3] ^ key[1], first & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return tuple(block)


def unit(vector):
    """A vector scaled to length 1; zero stays zero."""
    length = math.sqrt(sum(float(x) ** 2 for x in vector))
    return [float(x) / length if length else 0.0 for x in vector]


def children(tree, node):
    return [other for other in range(len(tree.parent)) if tree.parent[other] == node]


def rows_under(tree, node):
    """The catalogue rows below a node, by walking down to the leaves."""
    below = children(tree, node)
    if not below:
        first, last = tree.item_range[node]
        return sorted(int(row) for row in tree.items[first:last])
    return sorted(row for child in below for row in rows_under(tree, child))


def vector_of(tree, node, vectors, normalize=True):
    """A leaf's vector is the mean of its items, an inner node's the unweighted mean of its children's."""
    below = children(tree, node)
    if below:
        parts = [vector_of(tree, child, vectors, normalize) for child in below]
    else:
        rows = rows_under(tree, node)
        parts = [unit(vectors[row]) if normalize else [float(x) for x in vectors[row]] for row in rows]
    return [sum(column) / len(parts) for column in zip(*parts, strict=True)]


def check_tree(tree, vectors, normalize=True):
    """Everything a tree promises, one node at a time."""
    nodes = range(len(tree.parent))
    assert tree.parent[0] == -1
    assert rows_under(tree, 0) == list(range(len(vectors)))
    for node in nodes:
        assert list(tree.children_of(node)) == children(tree, node)
        assert sorted(tree.items_of(node).tolist()) == rows_under(tree, node) != []
        assert tree.level[node] == (1 if node == 0 else tree.level[tree.parent[node]] + 1)
        expected = vector_of(tree, node, vectors, normalize)
        scale = max(1.0, float(np.abs(vectors).max())) if not normalize else 1.0
        np.testing.assert_allclose(tree.vectors[node], expected, atol=2e-6 * scale, rtol=1e-5)


def error_at(tree, level, vectors):
    """Mean squared distance of items from their node at a level, or from their leaf if that is higher up."""
    total = 0.0
    for node in range(len(tree.parent)):
        if tree.level[node] == level or (tree.level[node] < level and not children(tree, node)):
            centre = tree.vectors[node].astype(float)
            total += sum(((np.array(unit(vectors[row])) - centre) ** 2).sum() for row in rows_under(tree, node))
    return total / len(vectors)


def telling_words(tree, titles, node, words=3):
    """Class-based TF-IDF of one node against the nodes of its level, with words of lift under 1.5 left out."""
    counts = {
        other: Counter(
            word for row in rows_under(tree, other) for word in set(titles[row].lower().split()) if word[0].isalpha()
        )
        for other in range(len(tree.parent))
        if tree.level[other] == tree.level[node]
    }
    everywhere = sum(counts.values(), Counter())
    total, own = sum(everywhere.values()), sum(counts[node].values())
    filled = sum(bool(count) for count in counts.values())
    scores = {}
    for word, count in counts[node].items():
        if count / own * total / everywhere[word] >= 1.5:
            scores[word] = count / own * math.log(1 + total / filled / everywhere[word])
    return sorted(scores, key=lambda word: (-scores[word], word))[:words]
