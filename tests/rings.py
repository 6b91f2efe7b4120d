"""A log whose next click follows from the last, for models that learn from clicks."""

import numpy as np

import treeward as tw

ITEMS = 40


def rings(users, seed=0):
    """Return the log of users who each walk along one of two rings of items, one step at a time."""
    random = np.random.default_rng(seed)
    who, what = [], []
    for user in range(users):
        ring, at, half = user % 2, random.integers(ITEMS // 2), ITEMS // 2
        for step in range(6):
            who.append(f"u{user}")
            what.append(f"i{ring * half + (at + step) % half:02}")
    return tw.Interactions(who, what)


def ring_shop():
    """Return the items of both rings."""
    return tw.Catalogue([f"i{item:02}" for item in range(ITEMS)], titles=[f"thing number {i}" for i in range(ITEMS)])
