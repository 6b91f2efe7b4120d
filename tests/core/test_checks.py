import inspect
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from treeward.bandit import LinUCB
from treeward.core import checks
from treeward.core.checks import Count, NotNegative, Number, Whole
from treeward.core.errors import InvalidArgument, TreewardError
from treeward.data.catalogue import Catalogue


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([[1.0, np.nan]], r"finite in float32, got '\[ 1. nan\] in row 0'"),
        ([[1.0], [np.inf]], "in row 1"),
        ([[1e300]], "finite in float32"),
        ([1.0, 2.0], r"shape \(items, dimensions\), got 'shape \(2,\)'"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros((0, 4)), "at least one row and one column"),
        (np.zeros((4, 0)), "at least one row and one column"),
        ([["a", "b"]], "a matrix of numbers"),
        (np.array([[object()]]), "a matrix of numbers"),
        (np.zeros((2, 2), dtype=complex), "a matrix of numbers"),
        (np.zeros((2, 2), dtype=bool), "a matrix of numbers"),
        ([[1.0], [1.0, 2.0]], "rows have one length"),
        (None, "a matrix of numbers"),
        (np.ma.masked_array([[1.0, 2.0]], [[True, False]]), "a matrix without a mask"),
    ],
)
def test_bad_vectors_are_refused(value, why):
    with pytest.raises(InvalidArgument, match=f"^somewhere: vectors must be .*{why}"):
        checks.vectors("somewhere", value)


def test_bad_value_in_a_late_row_is_found():
    vectors = np.zeros((200_000, 2), dtype=np.float32)
    vectors[170_001, 1] = np.nan
    with pytest.raises(InvalidArgument, match="row 170001"):
        checks.vectors("somewhere", vectors)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint32])
def test_numbers_become_float32_in_c_order(dtype):
    made = checks.vectors("somewhere", np.asfortranarray(np.arange(6).reshape(3, 2).astype(dtype)))
    assert made.dtype == np.float32
    assert made.flags.c_contiguous
    assert made.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_memory_map_is_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(checks.vectors("somewhere", mapped), mapped)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((10, 5), "strictly increasing"),
        ((5, 5), "strictly increasing"),
        ((0, 5), "an integer of at least 1"),
        ((-1,), "an integer of at least 1"),
        ((2.5,), "an integer of at least 1"),
        ((True, 5), "an integer of at least 1"),
        (("2",), "an integer of at least 1"),
        ("25", "a sequence of integers"),
        (np.array(5), "a sequence of integers"),
        (7, "a sequence of integers"),
        ((5, 21), r"at most the number of items \(20\) at the leaves, got \(5, 21\)"),
    ],
)
def test_bad_widths_are_refused(value, why):
    with pytest.raises(InvalidArgument, match=f"widths must be {why}"):
        checks.widths("somewhere", value, items=20)


def test_good_widths_become_a_tuple_of_integers():
    assert checks.widths("somewhere", [np.int64(2), 20], items=20) == (2, 20)
    assert checks.widths("somewhere", (), items=20) == ()


def test_error_names_owner_parameter_rule_and_short_value():
    error = InvalidArgument("Owner", "thing", "short", "x" * 500)
    assert (error.owner, error.parameter, error.rule) == ("Owner", "thing", "short")
    assert len(str(error)) < 180
    assert isinstance(error, ValueError)
    assert isinstance(error, TreewardError)


def test_misspelt_name_gets_a_suggestion():
    with pytest.raises(InvalidArgument, match=r"one of flat, hcb, pHCB \(did you mean 'pHCB'\?\), got 'phbc'"):
        checks.one_of("x", "policy", "phbc", ("flat", "hcb", "pHCB"))
    with pytest.raises(InvalidArgument, match="one of flat, hcb, got 'zebra'"):
        checks.one_of("x", "policy", "zebra", ("flat", "hcb"))


@dataclass(frozen=True)
class Demo:
    count: Count = 1
    port: Annotated[int, Whole(0, 9)] = 0
    share: Annotated[float, Number(above=0, high=1)] = 0.5
    kind: Literal["", "linear", "mean"] = "linear"
    on: bool = True
    window: NotNegative | None = None
    sizes: tuple[Count, ...] = ()
    catalogue: Catalogue | None = None
    seed: int = 0
    way: Literal[1, 2] = 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"count": 0}, "count must be an integer of at least 1, got 0"),
        ({"count": True}, "count must be an integer of at least 1, got True"),
        ({"port": 10}, "port must be an integer from 0 to 9, got 10"),
        ({"share": 0}, "share must be a finite number above 0 and of at most 1, got 0"),
        ({"share": float("nan")}, "share must be a finite number above 0 and of at most 1, got nan"),
        ({"share": 10**400}, "got 'one of very many digits'"),
        ({"kind": "liner"}, r"kind must be one of linear, mean \(did you mean 'linear'\?\), got 'liner'"),
        ({"kind": ["mean"]}, "kind must be one of linear, mean"),
        ({"kind": np.array(["mean", "linear"])}, "kind must be one of linear, mean"),
        ({"way": 3}, "way must be one of 1, 2, got 3"),
        ({"on": 1}, "on must be True or False, got 1"),
        ({"window": -1}, "window must be a finite number of at least 0, got -1"),
        ({"sizes": (3, 0)}, "sizes must be an integer of at least 1, got 0"),
        ({"sizes": "12"}, "sizes must be a sequence, each element an integer of at least 1, got '12'"),
        ({"sizes": b"12"}, "sizes must be a sequence, each element an integer of at least 1, got b'12'"),
        ({"sizes": np.array(12)}, "sizes must be a sequence, each element an integer of at least 1"),
        ({"catalogue": 7}, "catalogue must be of type Catalogue, got 'int'"),
    ],
)
def test_a_field_that_breaks_its_rule_is_refused(given, why):
    with pytest.raises(InvalidArgument, match=f"^Demo: .*{why}"):
        checks.validate(Demo(**given))
    with pytest.raises(InvalidArgument, match="^elsewhere: "):
        checks.validate(Demo(**given), "elsewhere")


def test_validating_makes_numbers_plain_and_changes_nothing_else():
    made = Demo(np.int64(3), share=1, kind="", on=np.True_, sizes=[np.int32(4)], seed="unchecked")
    held = checks.validate(made)
    assert held == Demo(3, share=1.0, kind="", on=True, sizes=(4,), seed="unchecked")
    kinds = [type(one) for one in (held.count, held.share, held.on, held.sizes[0])]
    assert kinds == [int, float, bool, int]
    assert checks.validate(held) is held
    assert type(checks.validate(Demo(sizes=(np.int32(4),))).sizes[0]) is int


def test_a_subclass_with_another_init_is_validated():
    class Mine(LinUCB):
        def __init__(self, boldness):
            super().__init__(alpha=boldness)
            object.__setattr__(self, "note", "kept")

    mine = Mine(1)
    held = checks.validate(mine)
    assert (type(held), held.alpha, held.note) == (Mine, 1.0, "kept")
    assert (type(held.alpha), type(mine.alpha)) == (float, int)
    assert mine.rule(3) == LinUCB(alpha=1.0).rule(3)


def test_rules_are_described_by_field():
    told = {name: rule.describe() for name, rule in checks.rules_of(Demo).items()}
    assert told["share"] == "a finite number above 0 and of at most 1"
    assert told["kind"] == "one of linear, mean"
    assert told["window"] == "a finite number of at least 0"
    assert "seed" not in told


def test_arguments_are_checked_by_position_and_by_keyword():
    @checks.checked()
    def build(vectors, size: Count, *, share: NotNegative = 1, **rest: object) -> tuple[object, ...]:
        """Documented."""
        return size, share, rest

    assert (build.__doc__, str(inspect.signature(build))[:14]) == ("Documented.", "(vectors, size")
    assert build(None, np.int64(2)) == (2, 1, {})
    assert build(None, size=2, share=np.float32(0.5), more=1) == (2, 0.5, {"more": 1})
    for given, named in (((None, 0), {}), ((None,), {"size": 0}), ((None, 1), {"share": -1})):
        with pytest.raises(InvalidArgument, match="build: (size|share) must be "):
            build(*given, **named)
    with pytest.raises(TypeError, match="positional"):
        build(None, 1, 2)
