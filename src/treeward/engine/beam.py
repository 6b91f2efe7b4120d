"""A beam down the tree: the items of the highest means, found without looking at all of them. The kernels of `Beam`."""

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import inner, inner_apart, tight, tight_summing
from treeward.core.types import Floats, Integers
from treeward.engine.available import Screen, clear, is_open, nth, offered, taken
from treeward.engine.explore import GREEDY_LINEAR, SAMPLE, Candidates, best_drawn, best_of, best_scored, dot, draw
from treeward.engine.layout import Plan, Search, State
from treeward.engine.posterior import factorise
from treeward.engine.replay import leaf_at
from treeward.engine.sampling import FRESH, HALF, ITEM, WHICH, copy, cost, gather, sample, with_shortlist
from treeward.engine.trace import Trace, chances, tell


@inner_apart
def choose_found(
    plan: Plan,
    state: State,
    seat: int,
    total: int,
    screen: Screen,
    explores: bool,
    seed: int,
    stream: int,
    first: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int, int]:
    """Choose among the items that a beam comes to, or, once in a while, any."""
    arm, dim, counter = candidates.arm, plan.items.shape[1], first + ITEM + HALF
    inverse, theta = state.posterior.inverse[seat, 0], state.posterior.theta[seat, 0]
    copy(theta, candidates.drawn)
    if plan.kind == SAMPLE:
        factorise(inverse, candidates.root)
        draw(candidates, theta, plan.strength if explores else 0.0, seed, stream, counter)
    sampled = not _any(candidates.drawn)  # nothing is known, not even what is popular
    if sampled:
        count, means = min(total, plan.item_budget), 0
        sample(arm, count, total, seed, stream, first + ITEM)
        for i in range(count):
            arm[i] = arm[i] if clear(screen) else nth(screen, 0, len(plan.items), arm[i])
    else:
        count, means = find(plan, candidates.drawn, screen, candidates)
    count = with_shortlist(state.short, seat, screen, candidates, count)
    gather(plan, state, seat, count, candidates)
    x = candidates.vectors[:count]
    if plan.kind == SAMPLE:
        chosen = best_drawn(theta, x, candidates, seed, stream, counter)
    else:
        chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter)
        if not explores:
            chosen = best_scored(GREEDY_LINEAR, 0.0, count, candidates, seed, stream, counter)
    found, fresh = count, plan.search.fresh
    if explores and fresh > 0 and rng.uniform(seed, stream, first + FRESH) < fresh:
        at = rng.below(seed, stream, first + WHICH, total)
        arm[found] = at if clear(screen) else nth(screen, 0, len(plan.items), at)
        candidates.mean[found] = dot(plan.items[arm[found]], theta)
        chosen = _position(arm, found)
        count = max(count, chosen + 1)
    chance, plain, explore = 0.0, 0.0, plan.rules.explore
    if len(trace.seen) > 0 and chosen < found:
        chance, plain = chances(
            plan.kind, plan.strength, explore, theta, found, chosen, candidates, seed, stream, counter
        )
    elif sampled:  # it was drawn, but might as well have been sampled
        chance = plain = 1.0 / found
    share = found / total if sampled else 1.0
    chance = explore * (fresh / total + (1.0 - fresh) * chance * share) + (1.0 - explore) * plain * share
    out_of = max(total, count + 1) if sampled and found < total else count
    told = chance * out_of / count
    tell(trace, candidates, count, out_of, chosen, told, told)
    work = means * dim + cost(plan.kind, found, dim)
    return arm[chosen], leaf_at(plan.tree, arm[chosen]), found if found > 1 else 0, work


@tight
def _position(arm: NDArray[np.int64], last: int) -> int:
    """Return which arm is the same as the last one: an earlier one, or itself."""
    at = 0
    while arm[at] != arm[last]:
        at += 1
    return at


@tight
def _any(values: Floats) -> bool:
    found = False
    for i in range(len(values)):
        found = found or values[i] != 0
    return found


@inner
def find(plan: Plan, theta: Floats, screen: Screen, candidates: Candidates) -> tuple[int, int]:
    """Write the open places of the highest means into `candidates.arm`; return how many, and how many means it took.

    Level by level the best nodes are followed: a node counts for the best item it may hide, see `Search`.
    """
    tree, search, most = plan.tree, plan.search, len(candidates.usable) // 2
    length, plain = _length(theta, search.own), clear(screen)
    old, new = candidates.usable[:most], candidates.usable[most:]
    old_rank, new_rank = candidates.rank[:most], candidates.rank[most:]
    old[0], old_rank[0] = 0, np.float32(0.0)
    count, means, level = 1, 0, 1
    while _any_inner(tree.first_child, old, count):
        level += 1
        follow, kept = search.width[level], 0
        for i in range(count):
            node = old[i]
            first, last = tree.first_child[node], tree.first_child[node + 1]
            if first == last:  # a leaf among inner nodes waits for them
                kept = _offer(new, new_rank, kept, follow, node, old_rank[i])
            for child in range(first, last):
                middle, begin, end = (
                    dot(tree.vectors[child], theta),
                    tree.item_range[child, 0],
                    tree.item_range[child, 1],
                )
                last_feature = tree.vectors[child, len(theta) - 1]
                rank = middle + _beyond(search, theta, length, level, child, last_feature, begin, end - begin, 0)
                if plain:
                    kept = _offer(new, new_rank, kept, follow, child, rank)
                elif kept < follow or rank > new_rank[kept - 1]:  # what is closed only makes it less
                    size, gone = offered(screen, begin, end), taken(screen, begin, end)
                    if gone < size:
                        rank = middle + _beyond(search, theta, length, level, child, last_feature, begin, size, gone)
                        kept = _offer(new, new_rank, kept, follow, child, rank)
            means += last - first
        old, new, old_rank, new_rank, count = new, old, new_rank, old_rank, kept
    return _items(
        plan.items, plan.bonus, tree.item_range, plan.item_budget, theta, screen, candidates, old, count, means
    )


@inner
def _items(
    items: Floats,
    bonus: Floats,
    ranges: Integers,
    most: int,
    theta: Floats,
    screen: Screen,
    candidates: Candidates,
    leaves: NDArray[np.int64],
    count: int,
    means: int,
) -> tuple[int, int]:
    """Offer all items of the leaves that were reached."""
    arm, rank, plain = candidates.arm, candidates.mean, clear(screen)
    kept, some_are_new, flagged = 0, len(bonus) > 0, not screen.only and len(screen.flags.open) > 0
    for i in range(count):
        begin, end = ranges[leaves[i], 0], ranges[leaves[i], 1]
        for place in range(begin, end):
            if flagged and not screen.flags.open[place]:  # most likely a free place
                continue
            worth = dot(items[place], theta)
            if some_are_new:
                worth += bonus[place]
            if (kept < most or worth > rank[kept - 1]) and (plain or is_open(screen, place)):
                kept = _offer(arm, rank, kept, most, place, worth)
        means += end - begin
    return kept, means


@tight
def _offer(arm: NDArray[np.int64], rank: Floats, count: int, most: int, newcomer: int, worth: np.float32) -> int:
    """Put somebody among the first `count`, best first, of whom at most `most` stay; return how many there are now."""
    at = count if count < most else most - 1
    if at == most - 1 and count == most and worth <= rank[at]:
        return count
    while at > 0 and rank[at - 1] < worth:
        arm[at], rank[at] = arm[at - 1], rank[at - 1]
        at -= 1
    arm[at], rank[at] = newcomer, worth
    return min(count + 1, most)


@tight_summing
def _length(theta: Floats, own: int) -> np.float32:
    total = np.float32(0.0)
    for i in range(own):
        total += theta[i] * theta[i]
    return np.float32(np.sqrt(total))


@tight
def _any_inner(first_child: Integers, nodes: NDArray[np.int64], count: int) -> bool:
    inner = False
    for i in range(count):
        inner = inner or first_child[nodes[i]] < first_child[nodes[i] + 1]
    return inner


@inner
def _beyond(
    search: Search,
    theta: Floats,
    length: np.float32,
    level: int,
    node: int,
    popular: np.float32,
    begin: int,
    size: int,
    gone: int,
) -> np.float32:
    """Return by how much the best item left in a node is likely to be better than the node's middle.

    It has `size` items, of which `gone` are closed to the user: most likely the best.
    """
    last = len(theta) - 1
    share = (gone + np.float32(0.6)) / (size + np.float32(0.2))
    more = length * search.reach[node] * search.ranks[int(share * np.float32(255.0))]
    if search.ladder.shape[1] > 0 and theta[last] > 0:
        more += theta[last] * (search.ladder[level, begin + gone] - popular)
    return np.float32(more)
