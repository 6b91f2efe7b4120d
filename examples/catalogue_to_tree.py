"""From a catalogue to a named tree: build, describe, walk, draw, save.

Run it anywhere: ``python examples/catalogue_to_tree.py``. It writes to the current folder.
"""

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue

shop = synthetic_catalogue(items=5_000, dim=16, seed=0)
tree = tw.ItemTree.build(shop.vectors, widths=(20, 300), seed=0).named(shop.titles)
print(tree.describe(shop.vectors))

# Walk from the root to the largest leaf.
node = 0
while children := tree.children_of(node):
    node = max(children, key=lambda child: len(tree.items_of(child)))
    print(f"level {tree.level[node]}: {tree.names[node]} ({len(tree.items_of(node))} items)")
print("for instance:", [shop.titles[int(row)] for row in tree.items_of(node)[:3]])

tree.save("tree", overwrite=True)
tree.draw("tree.html", titles=shop.titles)
tree.draw("tree.png")
