"""Context features without a network."""

import numpy as np
import pytest

import treeward as tw
from tests.embed.test_neural import devices
from treeward.core.errors import InvalidArgument


def test_crossed_features_learn_tastes_by_context(tmp_path):
    shop, log, contexts = devices(3_000)
    made = tw.Crossed.over(shop, {"device": ["desk", "phone"], "hour": 24}, dims=2)
    seen = made.transform(shop)
    assert seen.dim == made.dim == 2 + 4 * 3 + 1
    assert made.transform(seen) is seen
    gates = {name: made.gate({"device": name}) for name in ("phone", "desk")}
    assert gates["phone"].sum() == gates["desk"].sum() == 2 + 3 + 1
    assert made.gate(None).sum() == 3
    np.testing.assert_allclose(made.gate({"hour": 30}), made.gate({"hour": 6}), atol=1e-6)
    z = seen.vectors[log.items.to_numpy()] * np.array([gates[name] for name in contexts["device"]])
    theta = np.linalg.solve(z.T @ z + np.eye(made.dim), z.T @ log.rewards.to_numpy())
    phone = seen.vectors @ (theta * gates["phone"])
    assert phone[:30].mean() > phone[30:].mean() + 0.4
    made.save(tmp_path / "crossed")
    again = tw.load_features(tmp_path / "crossed")
    np.testing.assert_array_equal(again.mapped(shop.vectors), made.mapped(shop.vectors))
    np.testing.assert_array_equal(again.gate({"hour": 5}), made.gate({"hour": 5}))
    with pytest.raises(InvalidArgument, match="a number for hour"):
        made.gate({"hour": "noon"})
    for bad in ({"device": []}, {"device": "desk"}, {"hour": 0}):
        with pytest.raises(InvalidArgument, match="contexts"):
            tw.Crossed.over(shop, bad)
    tw.Explorer(shop, policy=tw.Beam(features=made), seed=0).recommend(["ada"])
