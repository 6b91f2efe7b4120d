"""Bandit libraries for Python: mabwiser, contextualbandits, river, Open Bandit Pipeline.

Their LinUCB keeps one model per arm, over a context that all arms share. There are two ways to apply that to users and
items. As documented (`Items`): an item is an arm, and the context describes what the user has liked so far. The other
way round (`Users`): a user has a model with one arm, and items are contexts; the best item is the context with the
highest bound. The second way learns across items, which the first cannot.
"""

from typing import Any

import numpy as np
from task import ALPHA, Arm, Once, Profiled, Task


class MabwiserItems(Profiled):
    """One arm per item."""

    package = "mabwiser"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from mabwiser.mab import MAB, LearningPolicy

        self.mab = MAB(list(range(task.items)), LearningPolicy.LinUCB(alpha=ALPHA), seed=task.seed)
        self.mab.fit([0], [0], self.profile(0))

    def choose(self, user: int) -> int:
        return int(self.mab.predict(self.profile(user)))

    def learn(self, user: int, row: int, reward: float) -> None:
        self.mab.partial_fit([row], [reward], self.profile(user))
        self.note(user, row, reward)


class MabwiserUsers(Arm):
    """One model per user; every item is a context."""

    package = "mabwiser"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from mabwiser.mab import MAB, LearningPolicy

        self.vectors = task.vectors.astype(np.float64)
        self.mabs = []
        for _ in range(task.users):
            mab = MAB(["taste"], LearningPolicy.LinUCB(alpha=ALPHA), seed=task.seed)
            mab.fit(["taste"], [0], np.zeros((1, task.vectors.shape[1])))
            self.mabs.append(mab)

    def choose(self, user: int) -> int:
        told = self.mabs[user].predict_expectations(self.vectors)
        return int(np.argmax([each["taste"] for each in told]))

    def learn(self, user: int, row: int, reward: float) -> None:
        self.mabs[user].partial_fit(["taste"], [reward], self.vectors[row : row + 1])


class MabwiserVisited(Once):
    """For a stream of visits: one model of all users; 50 items that the user has not seen are the contexts."""

    package = "mabwiser"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from mabwiser.mab import MAB, LearningPolicy

        self.vectors = np.hstack([task.vectors, np.ones((task.items, 1))]).astype(np.float64)
        self.mab = MAB(["taste"], LearningPolicy.LinUCB(alpha=ALPHA), seed=task.seed % 2**31)
        self.mab.fit(["taste"], [0], np.zeros((1, self.vectors.shape[1])))

    def choose(self, user: int) -> int:
        rows = self.unseen(user)
        told = self.mab.predict_expectations(self.vectors[rows])
        each = told if isinstance(told, list) else [told]  # of one context: no list
        return rows[int(np.argmax([one["taste"] for one in each]))]

    def learn(self, user: int, row: int, reward: float) -> None:
        self.seen[user].add(row)
        self.mab.partial_fit(["taste"], [reward], self.vectors[row : row + 1])


class ContextualItems(Profiled):
    """One arm per item."""

    package = "contextualbandits"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from contextualbandits.online import LinUCB

        self.model = LinUCB(nchoices=task.items, alpha=ALPHA, fit_intercept=False, random_state=task.seed + 1, njobs=1)

    def choose(self, user: int) -> int:
        return int(self.model.predict(self.profile(user))[0])

    def learn(self, user: int, row: int, reward: float) -> None:
        self.model.partial_fit(self.profile(user), np.array([row]), np.array([reward]))
        self.note(user, row, reward)


class ContextualUsers(Arm):
    """One model per user (two arms, the fewest allowed, of which one is used); every item is a context."""

    package = "contextualbandits"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from contextualbandits.online import LinUCB

        self.vectors = task.vectors.astype(np.float64)
        self.models = [
            LinUCB(nchoices=2, alpha=ALPHA, fit_intercept=False, random_state=task.seed + 1, njobs=1)
            for _ in range(task.users)
        ]
        self.taught: set[int] = set()

    def choose(self, user: int) -> int:
        if user not in self.taught:
            return int(self.random.integers(self.task.items))
        return int(np.argmax(self.models[user].decision_function(self.vectors)[:, 0]))

    def learn(self, user: int, row: int, reward: float) -> None:
        self.taught.add(user)
        self.models[user].partial_fit(self.vectors[row : row + 1], np.array([0]), np.array([reward]))


class River(Arm):
    """Bayesian linear regression, one model per user, asked for the bounds of 50 items that were drawn."""

    package = "river"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from river.linear_model import BayesianLinearRegression

        self.models = [BayesianLinearRegression() for _ in range(task.users)]

    def features(self, row: int) -> dict[int, float]:
        return dict(enumerate(self.task.vectors[row].tolist()))

    def bound(self, model: Any, row: int) -> float:
        told = model.predict_one(self.features(row), with_dist=True)
        return float(told.mu + ALPHA * max(told.sigma**2 - 1, 0) ** 0.5)  # without the noise: LinUCB's width

    def choose(self, user: int) -> int:
        rows = self.drawn().tolist()
        return int(max(rows, key=lambda row: self.bound(self.models[user], row)))

    def learn(self, user: int, row: int, reward: float) -> None:
        self.models[user].learn_one(self.features(row), reward)


class OpenBandit(Profiled):
    """One arm per item."""

    package = "obp"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from obp.policy import LinUCB

        dim = task.vectors.shape[1] + 1
        self.policy = LinUCB(dim=dim, n_actions=task.items, epsilon=ALPHA, random_state=task.seed)

    def choose(self, user: int) -> int:
        return int(self.policy.select_action(self.profile(user))[0])

    def learn(self, user: int, row: int, reward: float) -> None:
        self.policy.update_params(action=row, reward=reward, context=self.profile(user))
        self.note(user, row, reward)
