"""Beam search: find the items of the highest means without scoring the whole catalogue. The kernels of `Beam`."""

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import AnyArray, Floats, Integers
from treeward.engine.available import Screen, clear, closed_between, is_open, left, nth, offered
from treeward.engine.batch import Batch, close_taken, close_unavailable, describe_choice
from treeward.engine.crowd import offset_of
from treeward.engine.explore import SAMPLE, UCB, Belief, Candidates, Draws, best_drawn, dot, draw
from treeward.engine.layout import BeamArrays, Known, Search
from treeward.engine.places import leaf_at
from treeward.engine.posterior import row_of, spread, unpack
from treeward.engine.sampling import (
    FRESH,
    HALF,
    ITEM,
    ROUND,
    WHICH,
    best_gathered,
    copy,
    cost,
    gather,
    later,
    may_explore,
    sample,
    with_shortlist,
)
from treeward.engine.trace import Trace, begin_trace, chances, record_step


@kernel(allocates=False)
def choose_by_beam(
    beam: BeamArrays,
    known: Known,
    batch: Batch,
    slots: int,
    diverse: bool,
    screen: Screen,
    seed: int,
    candidates: Candidates,
    trace: Trace,
    out: AnyArray,
) -> None:
    """Decide `slots` times for each user of a batch, without repeating an item. Each slot has the next nonce.

    If `diverse`, no two items come from one leaf before every other leaf had its turn.
    """
    for i in range(len(batch.seat)):
        seat, first = batch.seat[i], i * slots
        unpack(known.packed, known.inverse, seat)
        for at in range(first, first + slots):
            if at == first or (diverse and left(screen, whole(0), len(beam.items)) <= 0):
                close_unavailable(known.shown, beam.numbers, batch, i, screen, out, first, at)
            made, nonce = out[at], batch.nonce[i] + at - first
            draws = Draws(seed, batch.stream[i], nonce * ROUND)
            place, node, scores, work = decide(beam, known, seat, screen, draws, candidates, trace)
            made["nonce"], made["place"], made["node"], made["scores"], made["work"] = nonce, place, node, scores, work
            made["item"] = beam.rows[place] if place >= 0 else -1
            if place >= 0:
                describe_choice(beam.numbers, beam.crowd, known, seat, beam.items[place], candidates, trace, made)
                if slots > 1:
                    close_taken(beam.first_child, beam.item_range, place, diverse, screen)


@inner(inline=False)
def decide(
    beam: BeamArrays, known: Known, seat: int, screen: Screen, draws: Draws, candidates: Candidates, trace: Trace
) -> tuple[int, int, int, int]:
    """Choose among the items that a beam finds; with a small probability, draw from the whole catalogue.

    Return the place, its leaf, and the scores and multiplications that it took. The place is -1 if nothing is open.
    """
    begin_trace(trace)
    size, dim = len(beam.items), beam.items.shape[1]
    total = size if clear(screen) else left(screen, whole(0), size)
    if total <= 0:
        return -1, -1, 0, 0
    numbers, arm = beam.numbers, candidates.arm
    belief = Belief(known.inverse[row_of(known.packed, seat), 0], known.theta[seat, 0], beam.crowd.root)
    theta = belief.theta
    explores, rule = may_explore(numbers, draws), later(draws, ITEM + HALF)
    copy(theta, candidates.drawn)
    if numbers.kind == SAMPLE:
        v = numbers.strength if explores else 0.0
        draw(candidates, belief, v, rule)
    sampled = not _any(candidates.drawn)  # nothing is known, not even popularity
    if sampled:
        count, means = min(total, numbers.item_budget), 0
        sample(arm, count, total, later(draws, ITEM))
        for i in range(count):
            arm[i] = arm[i] if clear(screen) else nth(screen, whole(0), size, arm[i])
    else:
        bold = numbers.kind == UCB and explores and numbers.strength > 0 and len(beam.search.starts) > 0
        count, means = _finalists(beam, belief, bold, screen, candidates)
    count = with_shortlist(known.short, seat, screen, candidates, count)
    gather(numbers.kind, beam.items, beam.bonus, beam.crowd.offset, known.history, seat, count, candidates)
    if numbers.kind == SAMPLE:
        x = candidates.vectors[:count]
        chosen = best_drawn(theta, x, candidates, rule)
    else:
        chosen = best_gathered(numbers, belief, count, explores, candidates, rule)
    found, fresh, explore = count, beam.search.fresh, numbers.explore
    if explores and fresh > 0 and rng.uniform(draws.seed, draws.stream, draws.counter + FRESH) < fresh:
        at = rng.below(draws.seed, draws.stream, draws.counter + WHICH, total)
        arm[found] = at if clear(screen) else nth(screen, whole(0), size, at)
        candidates.mean[found] = dot(beam.items[arm[found]], theta) + offset_of(beam.crowd.offset, arm[found])
        chosen = _position(arm, found)
        count = max(count, chosen + 1)
    chance, plain = 0.0, 0.0
    if len(trace.seen) > 0 and chosen < found:
        chance, plain = chances(numbers, belief, found, chosen, candidates, rule)
    elif sampled:  # it was drawn from the catalogue, but could have been sampled
        chance = plain = 1.0 / found
    share = found / total if sampled else 1.0
    chance = explore * (fresh / total + (1.0 - fresh) * chance * share) + (1.0 - explore) * plain * share
    out_of = max(total, count + 1) if sampled and found < total else count
    told = chance * out_of / count
    record_step(trace, candidates, count, out_of, chosen, told, told)
    work = means * dim + cost(numbers.kind, found, dim)
    leaf = leaf_at(beam.first_child, beam.item_range, arm[chosen])
    return arm[chosen], leaf, found if found > 1 else 0, work


@inner(inline=False)
def _finalists(beam: BeamArrays, belief: Belief, bold: bool, screen: Screen, candidates: Candidates) -> tuple[int, int]:
    """Write the items of the highest means by `candidates.drawn`; if `bold`, also some of high upper bounds.

    The upper bound x' theta + alpha |x|, in the norm of A^-1, is convex in x. Its tangent at z is x' theta', where
    theta' = theta + alpha A^-1 z / |z|, and lies nowhere above it. So the best item by theta' has a high bound, and it
    is found as the best item by theta is. Return the count of items and of means.
    """
    starts, arm, found = beam.search.starts, candidates.arm, candidates.found
    searches, count, means = len(starts) if bold else 0, whole(0), whole(0)
    for turn in range(searches + 1):
        if turn < searches:
            _tangent(belief, beam.numbers.strength, starts[turn], candidates.one[1], candidates.drawn)
            means += len(belief.theta)  # the product with A^-1 takes as many multiplications as d means
        elif bold:
            copy(belief.theta, candidates.drawn)
        count, more = find(beam, candidates.drawn, screen, candidates)
        means += more
        if turn < searches:
            found[turn] = arm[0] if count > 0 else -1
    bold_ones = whole(0)  # at most half of the budget is for them
    for turn in range(searches):
        place, known = found[turn], _among(arm, count, found[turn]) or _among(found, bold_ones, found[turn])
        if place >= 0 and not known and bold_ones < beam.numbers.item_budget // 2:
            found[bold_ones] = place
            bold_ones += 1
    count = min(count, beam.numbers.item_budget - bold_ones)
    for i in range(bold_ones):
        arm[count + i] = found[i]
    return count + bold_ones, means


@inner
def _tangent(belief: Belief, strength: float, at: Floats, z: Floats, out: Floats) -> None:
    """Write theta + strength A^-1 x / |x|, where x is `at`; `z` receives A^-1 x."""
    slope = np.float32(strength) / np.sqrt(max(spread(belief.inverse, at, z), np.float32(1e-12)))
    for j in range(len(out)):
        out[j] = belief.theta[j] + slope * z[j]


@inner
def _position(arm: NDArray[np.int64], last: int) -> int:
    """Return the first position of the arm at `last`."""
    at = 0
    while arm[at] != arm[last]:
        at += 1
    return at


@inner
def _any(values: Floats) -> bool:
    found = False
    for i in range(len(values)):
        found = found or values[i] != 0
    return found


@inner
def find(beam: BeamArrays, theta: Floats, screen: Screen, candidates: Candidates) -> tuple[int, int]:
    """Write the open places of the highest means into `candidates.arm`; return how many, and how many means it took.

    Level by level the best nodes are followed: a node counts for the best item it may hide, see `Search`.
    """
    search, most, first_child = beam.search, len(candidates.usable) // 2, beam.first_child
    length, plain = _length(theta, search.own), clear(screen)
    old, new = candidates.usable[:most], candidates.usable[most:]
    old_rank, new_rank = candidates.rank[:most], candidates.rank[most:]
    old[0], old_rank[0] = 0, np.float32(0.0)
    count, means, level = whole(1), whole(0), 1
    while _any_inner(first_child, old, count):
        level += 1
        follow, kept = search.width[level], whole(0)
        for i in range(count):
            node = old[i]
            first, last = whole(first_child[node]), whole(first_child[node + 1])
            if first == last:  # a leaf among inner nodes waits for them
                kept = offer(new, new_rank, kept, follow, node, old_rank[i])
            at, stop = closed_between(screen, whole(beam.item_range[node, 0]), whole(beam.item_range[node, 1]))
            for child in range(first, last):
                begin, end = whole(beam.item_range[child, 0]), whole(beam.item_range[child, 1])
                middle, size, gone = dot(beam.vectors[child], theta), end - begin, whole(0)
                mine = at
                while at < stop and screen.mine[at] < end:  # the children's places follow one another
                    at += 1
                popular = beam.vectors[child, len(theta) - 1]
                rank = middle + _beyond(
                    search, beam.crowd.crest, theta, length, level, child, popular, begin, size, gone
                )
                if not plain and (kept < follow or rank > new_rank[kept - 1]):  # closed items can only lower the rank
                    size, gone = offered(screen, begin, end), at - mine
                    if gone >= size:
                        continue
                    rank = middle + _beyond(
                        search, beam.crowd.crest, theta, length, level, child, popular, begin, size, gone
                    )
                kept = offer(new, new_rank, kept, follow, child, rank)
            means += last - first
        old, new, old_rank, new_rank, count = new, old, new_rank, old_rank, kept
    return _items(beam, theta, screen, candidates, old, count, means)


@inner
def _items(
    beam: BeamArrays,
    theta: Floats,
    screen: Screen,
    candidates: Candidates,
    leaves: NDArray[np.int64],
    count: int,
    means: int,
) -> tuple[int, int]:
    """Rank the items of the leaves that were reached."""
    arm, rank, plain = candidates.arm, candidates.mean, clear(screen)
    kept, most, some_are_new = (
        _well_liked(beam, theta, screen, candidates),
        beam.numbers.item_budget,
        len(beam.bonus) > 0,
    )
    flagged = not screen.only and len(screen.flags.open) > 0
    for i in range(count):
        begin, end = whole(beam.item_range[leaves[i], 0]), whole(beam.item_range[leaves[i], 1])
        for place in range(begin, end):
            if flagged and not screen.flags.open[place]:  # most of these are free places
                continue
            worth = dot(beam.items[place], theta) + offset_of(beam.crowd.offset, place)
            if some_are_new:
                worth += beam.bonus[place]
            if (kept < most or worth > rank[kept - 1]) and (plain or is_open(screen, place)):
                known = len(beam.crowd.top) > 0 and _among(arm, kept, place)
                kept = kept if known else offer(arm, rank, kept, most, place, worth)
        means += end - begin
    return kept, means + len(beam.crowd.top)


@inner
def _well_liked(beam: BeamArrays, theta: Floats, screen: Screen, candidates: Candidates) -> int:
    """Rank the items that the crowd likes best, which suit most new users. Return how many are kept."""
    kept, plain, top, dim = whole(0), clear(screen), beam.crowd.top, len(theta)
    for i in range(len(top)):
        row = beam.crowd.liked[i]
        worth = dot(theta, row) + row[dim] + row[dim + 1]
        if (kept < beam.numbers.item_budget or worth > candidates.mean[kept - 1]) and (
            plain or is_open(screen, top[i])
        ):
            kept = offer(candidates.arm, candidates.mean, kept, beam.numbers.item_budget, top[i], worth)
    return kept


@inner
def _among(arm: NDArray[np.int64], count: int, place: int) -> bool:
    found = False
    for i in range(count):
        found = found or arm[i] == place
    return found


@inner
def offer(arm: NDArray[np.int64], rank: Floats, count: int, most: int, newcomer: int, worth: np.float32) -> int:
    """Insert a node or place into the first `count`, best first; at most `most` stay. Return the new count."""
    at = count if count < most else most - 1
    if at == most - 1 and count == most and worth <= rank[at]:
        return count
    while at > 0 and rank[at - 1] < worth:
        arm[at], rank[at] = arm[at - 1], rank[at - 1]
        at -= 1
    arm[at], rank[at] = newcomer, worth
    return min(count + 1, most)


@inner(sums=True)
def _length(theta: Floats, own: int) -> np.float32:
    total = np.float32(0.0)
    for i in range(own):
        total += theta[i] * theta[i]
    return np.float32(np.sqrt(total))


@inner
def _any_inner(first_child: Integers, nodes: NDArray[np.int64], count: int) -> bool:
    inner = False
    for i in range(count):
        inner = inner or first_child[nodes[i]] < first_child[nodes[i] + 1]
    return inner


@inner
def _beyond(
    search: Search,
    crest: Floats,
    theta: Floats,
    length: np.float32,
    level: int,
    node: int,
    popular: np.float32,
    begin: int,
    size: int,
    gone: int,
) -> np.float32:
    """Return by how much the best item left in a node is expected to exceed the node's mean.

    The node has `size` items, of which `gone` are closed to the user, most likely the best ones. See `Search`.
    """
    last = len(theta) - 1
    share = (gone + np.float32(0.6)) / (size + np.float32(0.2))
    more = length * search.reach[node] * search.ranks[int(share * np.float32(255.0))]
    if search.ladder.shape[1] > 0 and theta[last] > 0:
        more += theta[last] * (search.ladder[level, begin + gone] - popular)
    if len(crest) > 0:
        more += crest[min(gone, len(crest) - 1), node]
    return np.float32(more)
