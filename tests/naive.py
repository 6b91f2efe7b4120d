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


# --- bandits and policies --------------------------------------------------------------------------------------------


class NaivePosterior:
    """A and b in float64, inverted whenever asked."""

    def __init__(self, dim, ridge=1.0):
        self.precision, self.moment = ridge * np.eye(dim), np.zeros(dim)

    def learn(self, x, reward):
        x = np.asarray(x, dtype=float)
        self.precision = self.precision + np.outer(x, x)
        self.moment = self.moment + reward * x

    def theta(self):
        return np.linalg.solve(self.precision, self.moment)

    def inverse(self):
        return np.linalg.inv(self.precision)

    def width(self, x):
        return math.sqrt(np.asarray(x, dtype=float) @ np.linalg.solve(self.precision, np.asarray(x, dtype=float)))


def draw_uniform(seed, stream, counter):
    a, b, _, _ = philox(seed, stream, counter)
    return ((a >> 5) * 2**26 + (b >> 6)) / 2**53


def draw_normal(seed, stream, counter):
    a, b, c, d = philox(seed, stream, counter)
    radius, angle = ((a >> 5) * 2**26 + (b >> 6) + 1) / 2**53, ((c >> 5) * 2**26 + (d >> 6)) / 2**53
    return math.sqrt(-2 * math.log(radius)) * math.cos(2 * math.pi * angle)


def scored_vector(tree, node, vectors, kind):
    """What a policy scores a node by: its mean, or that scaled to the root mean square length of its items."""
    mean = [float(x) for x in tree.vectors[node]]
    length = math.sqrt(sum(x**2 for x in mean))
    if kind == "mean" or length == 0:
        return mean
    squares = [sum(float(x) ** 2 for x in vectors[row]) for row in rows_under(tree, node)]
    return [x * math.sqrt(sum(squares) / len(squares)) / length for x in mean]


class NaiveUser:
    """One user under one policy, told in the words of the paper: pointers, dictionaries, float64, one arm at a time."""

    def __init__(
        self,
        tree,
        vectors,
        bandit,
        *,
        personal,
        nodes,
        items,
        rule=None,
        start=None,
        by_level=False,
        node_vectors="unit",
        seed=0,
        stream=0,
    ):
        self.tree, self.bandit, self.personal = tree, bandit, personal
        self.vectors = [unit(vector) if tree.normalized else vector for vector in vectors]
        self.nodes, self.items, self.rule, self.by_level = nodes, items, rule, by_level
        count = len(tree.parent)
        self.node_vectors = [scored_vector(tree, node, self.vectors, node_vectors) for node in range(count)]
        self.seed, self.stream = seed, stream
        self.posteriors = {}
        self.events = []  # (row, node, reward)
        self.visible = list(start) if start is not None else [0]

    def posterior(self, slot):
        if slot not in self.posteriors:
            self.posteriors[slot] = NaivePosterior(self.tree.dim, self.bandit.ridge)
        return self.posteriors[slot]

    def stats(self, rows):
        earned = [reward for row, _, reward in self.events if row in rows]
        return len(earned), sum(earned)

    def sample(self, arms, most, counter):
        """Floyd's sample, from the same draws as the kernel."""
        if len(arms) <= most:
            return list(arms)
        chosen = []
        for i in range(most):
            last = len(arms) - most + i
            drawn = int(draw_uniform(self.seed, self.stream, counter + i) * (last + 1))
            chosen.append(last if drawn in chosen else drawn)
        return [arms[index] for index in chosen]

    def choose(self, arms, vector_of, rows_of, slot, counter, factor_of):
        kind, posterior = type(self.bandit).__name__, self.posterior(slot)
        vectors = [np.array(vector_of(arm), dtype=float) for arm in arms]
        if kind == "LinUCB":
            scores = [x @ posterior.theta() + self.bandit.alpha * posterior.width(x) for x in vectors]
        elif kind == "Thompson":
            root = np.linalg.cholesky(posterior.inverse())
            z = [draw_normal(self.seed, self.stream, counter + i) for i in range(self.tree.dim)]
            scores = [x @ (posterior.theta() + self.bandit.v * root @ z) for x in vectors]
        else:
            if draw_uniform(self.seed, self.stream, counter) < self.bandit.epsilon:
                return arms[int(draw_uniform(self.seed, self.stream, counter + 1) * len(arms))]
            if self.bandit.estimate == "linear":
                scores = [x @ posterior.theta() for x in vectors]
            else:
                stats = [self.stats(rows_of(arm)) for arm in arms]
                scores = [total / visits if visits else 0.0 for visits, total in stats]
        scores = [score * factor_of(arm) for score, arm in zip(scores, arms, strict=True)]
        start = int(draw_uniform(self.seed, self.stream, counter + 2**14) * len(arms))
        limit = max(scores) - 1e-6 * abs(max(scores))
        return next(arms[i] for i in [*range(start, len(arms)), *range(start)] if scores[i] >= limit)

    def step(self, arms, most, counter, *args):
        picked = self.sample(arms, most, counter)
        if len(picked) == 1:
            return picked[0], 0
        return self.choose(picked, *args[:3], counter + 2**15, args[3]), len(picked)

    def decide(self, nonce, gone=()):
        """Return (row, node, scores) for one round; the rows in `gone` are not to be shown."""
        tree, counter, scores = self.tree, nonce * 2**20, 0

        def left(node):
            return [row for row in tree.items_of(node).tolist() if row not in gone]

        def node_vector(node):
            return self.node_vectors[node]

        def node_rows(node):
            return set(rows_under(tree, node))

        if self.personal:
            arms = [node for node in self.visible if left(node)]
            factor = (lambda node: int(tree.level[node])) if self.by_level else (lambda node: 1)
            node, spent = self.step(arms, self.nodes, counter, node_vector, node_rows, "nodes", factor)
            scores += spent
        else:
            node = 0
            while children(tree, node):
                arms = [child for child in children(tree, node) if left(child)]
                slot = int(tree.level[node]) + 1
                node, spent = self.step(arms, self.nodes, counter, node_vector, node_rows, slot, lambda node: 1)
                scores, counter = scores + spent, counter + 2**16
        counter = nonce * 2**20 + 15 * 2**16
        row, spent = self.step(
            left(node), self.items, counter, self.vectors.__getitem__, lambda row: {row}, "items", lambda row: 1
        )
        return row, node, scores + spent

    def update(self, row, node, reward):
        self.events.append((row, node, reward))
        if self.personal:
            self.posterior("nodes").learn(self.node_vectors[node], reward)
        else:
            while node != 0:
                self.posterior(int(self.tree.level[node])).learn(self.node_vectors[node], reward)
                node = int(self.tree.parent[node])
        self.posterior("items").learn(self.vectors[row], reward)
        if self.personal:
            holder = next(node for node in self.visible if row in self.tree.items_of(node))
            visits, total = self.stats(set(rows_under(self.tree, holder)))
            if children(self.tree, holder) and self.rule(int(self.tree.level[holder]), visits, total / visits):
                at = self.visible.index(holder)
                self.visible[at : at + 1] = children(self.tree, holder)
