"""What the tests of the explorer do with a small shop."""

import msgspec

import treeward as tw
from treeward.state.user_states import state_bytes


def explorer(shop, tree, policy=None, store=None, **options):
    return tw.Explorer(shop, tree, policy, store, **{"seed": 0, **options})


def told(decision):
    """Return all that a decision says, without its id."""
    return msgspec.structs.astuple(decision)[1:]


def live_a_while(made, users=("ada", "bob"), rounds=30):
    """Recommend and answer; return the rewards given, by decision."""
    given = {}
    for turn in range(rounds):
        decisions = made.recommend(users)
        rewards = {d.id: float((len(d.item) + turn + i) % 2) for i, d in enumerate(decisions)}
        made.feedback(rewards)
        given.update(rewards)
    return given


def bits(made, user):
    """Everything that is known of a user, as bytes."""
    [seat] = made._snapshot.decider.states.seat([user]).tolist()
    return state_bytes(made._snapshot.decider.states.state, seat)
