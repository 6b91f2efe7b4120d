"""treeward's sides, and the two ends of the scale: chance and an oracle."""

import numpy as np
from task import ALPHA, Arm, Task

import treeward as tw
from treeward.policy.base import Policy


class Chance(Arm):
    """Any item."""

    def choose(self, user: int) -> int:
        return int(self.random.integers(self.task.items))

    def learn(self, user: int, row: int, reward: float) -> None:
        pass


class Oracle(Arm):
    """Knows each user's best item."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.best = task.chances.argmax(axis=1)

    def choose(self, user: int) -> int:
        return int(self.best[user])

    def learn(self, user: int, row: int, reward: float) -> None:
        pass


class Treeward(Arm):
    """An `Explorer`, asked for one user at a time; every decision and click is an event in its store."""

    package = "treeward"
    memory = 1 << 28

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.shop = tw.Catalogue(range(task.items), task.vectors)
        self.explorer = tw.Explorer(self.shop, policy=self.policy(), memory=self.memory, seed=task.seed)
        for reward in (0.0, 1.0, 0.0):  # compiles
            self.learn(-1, self.choose(-1), reward)

    def policy(self) -> Policy:
        return tw.Beam(tw.LinUCB(alpha=ALPHA))

    def choose(self, user: int) -> int:
        [self.made] = self.explorer.recommend([user])
        return int(self.made.item)

    def learn(self, user: int, row: int, reward: float) -> None:
        self.explorer.feedback({self.made.id: reward})


class PHCB(Treeward):
    """The paper's policy, 50 scores a decision."""

    def policy(self) -> Policy:
        return tw.PHCB(tw.LinUCB(alpha=ALPHA))


class Exact(Treeward):
    """LinUCB over every item."""

    def policy(self) -> Policy:
        return tw.Flat(tw.LinUCB(alpha=ALPHA), budget=None)


class Primed(Treeward):
    """Beam, with a prior from the log of earlier users."""

    def policy(self) -> Policy:
        users, rows, clicks = self.task.log.T
        log = tw.Interactions(users, rows, rewards=clicks.astype(np.float64))
        return tw.Beam(tw.LinUCB(alpha=ALPHA), prior=tw.Crowd.fit(log, self.shop))
