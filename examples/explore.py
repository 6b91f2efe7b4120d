"""A shop and its visitors, in process: recommend, learn, explain.

Run it anywhere: ``python examples/explore.py``. It writes nothing.
"""

import treeward as tw

world = tw.World.synthetic(items=5_000, users=20, dim=16, seed=0)  # stands in for your users
shop = world.catalogue
tree = tw.ItemTree.build(shop.vectors, widths=(20, 300), seed=0).named(shop.titles)
explorer = tw.Explorer(shop, tree, tw.PHCB(tw.LinUCB(alpha=0.5)), seed=0)

users = [f"visitor {number}" for number in range(20)]
for day in range(60):
    decisions = explorer.recommend(users)
    rows = shop.rows(d.item for d in decisions)
    rewards = world.chances(range(20), rows)
    explorer.feedback({d.id: float(reward) for d, reward in zip(decisions, rewards, strict=True)})
    if day % 20 == 19:
        print(f"day {day + 1}: mean reward {rewards.mean():.3f}; a random item earns {world.base_rate():.3f}")

[d] = explorer.recommend(["visitor 0"])
print(explorer.explain(d))
for interest in explorer.inspect.interests("visitor 0")[:3]:
    print(f"{interest.name}: mean {interest.mean:.2f} ± {interest.width:.2f} after {interest.visits} visits")
