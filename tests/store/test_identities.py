"""Users who were forgotten or merged."""

from treeward.store.identities import Identities, spelled, user_of


def test_users_resolve_to_whom_they_became():
    """Names are compared by value; nothing of a forgotten user's name is left."""
    metadata = {"secret": b"secret", "epoch": b"0"}
    identities = Identities(metadata)
    metadata |= identities.move("visitor", "ada")
    metadata |= identities.move("".join(["a", "da"]), "bea")  # the same name, another object
    assert [identities.resolve(name, 0) for name in ("visitor", "ada", "bea")] == ["bea", "bea", "bea"]
    assert identities.resolve("ada", 2) == "ada"  # a new user of that name
    assert not any(b"ada" in value or b"visitor" in value for value in metadata.values())
    metadata |= identities.move("bea", None)
    assert [identities.resolve(name, 0) for name in ("visitor", "ada", "bea")] == [None, None, None]
    assert not any(b"bea" in value for value in metadata.values())
    copy = Identities(metadata)
    assert copy.epoch == 3
    assert [copy.resolve(name, 0) for name in ("visitor", "ada", "bea", "cleo")] == [None, None, None, "cleo"]


def test_a_user_who_was_merged_and_merged_back_has_moved():
    metadata = {"secret": b"secret", "epoch": b"0"}
    identities = Identities(metadata)
    assert not identities.moved_since("a", 0)
    metadata |= identities.move("a", "b")
    metadata |= identities.move("b", "a")
    for one in (identities, Identities(metadata)):
        assert one.resolve("a", 0) == "a"
        assert [one.moved_since("a", epoch) for epoch in (0, 1, 2)] == [True, False, False]
        assert [one.moved_since("b", epoch) for epoch in (0, 1, 2)] == [True, True, False]


def test_users_who_differ_only_in_kind_stay_apart():
    metadata = {"secret": b"secret", "epoch": b"0"}
    identities = Identities(metadata)
    metadata |= identities.move(7, "\ud800 \x00")
    for one in (identities, Identities(metadata)):
        assert (one.resolve(7, 0), one.resolve("7", 0)) == ("\ud800 \x00", "7")
    assert [user_of(spelled(user)) for user in (7, "7", "", "\ud800")] == [7, "7", "", "\ud800"]
