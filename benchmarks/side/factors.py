"""Recommenders that are fitted to a log: implicit, RePlay. Both may learn from the log of earlier users first."""

from typing import Any

import numpy as np
from task import ALPHA, Arm, Profiled, Task


class ALS(Arm):
    """implicit's ALS, fitted to the log and again every 20 rounds; a user's clicks are folded in at once.

    Who has not clicked yet gets what is popular, from the top. One decision in ten is drawn: ALS does not explore.
    """

    package = "implicit"
    every = 20

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import implicit.als
        import scipy.sparse

        self.make, self.csr = implicit.als.AlternatingLeastSquares, scipy.sparse.csr_matrix
        liked = task.log[task.log[:, 2] > 0]
        self.pairs = list(zip(liked[:, 0].tolist(), liked[:, 1].tolist(), strict=True))
        self.users = int(task.log[:, 0].max()) + 1
        self.clicked: list[list[int]] = [[] for _ in range(task.users)]
        self.shown = np.zeros(task.users, dtype=np.int64)
        self.popular = np.argsort(-np.bincount(liked[:, 1], minlength=task.items), kind="stable")

    def begin(self, turn: int) -> None:
        if turn % self.every == 0:
            users, rows = zip(*self.pairs, strict=True)
            table = self.csr((np.ones(len(rows), np.float32), (users, rows)), shape=(self.users, self.task.items))
            self.model = self.make(factors=32, num_threads=1, random_state=self.task.seed)
            self.model.fit(table, show_progress=False)

    def choose(self, user: int) -> int:
        if self.random.random() < 0.1:
            return int(self.random.integers(self.task.items))
        mine = self.clicked[user]
        if not mine:
            self.shown[user] += 1
            return int(self.popular[(self.shown[user] - 1) % len(self.popular)])
        row = self.csr((np.ones(len(mine), np.float32), ([0] * len(mine), mine)), shape=(1, self.task.items))
        ids, _ = self.model.recommend(user, row, N=1, filter_already_liked_items=False, recalculate_user=True)
        return int(ids[0])

    def learn(self, user: int, row: int, reward: float) -> None:
        if reward:
            self.clicked[user].append(row)
            self.pairs.append((user, row))


class RePlay(Profiled):
    """RePlay's LinUCB, one arm per item, fitted every 50 rounds; in between, users are shown their 10 best in turn."""

    package = "replay-rec"
    every = 50
    shown = 10

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import pandas as pd
        from replay.data import Dataset, FeatureHint, FeatureInfo, FeatureSchema, FeatureSource, FeatureType
        from replay.models import LinUCB
        from replay.utils.session_handler import State, get_spark_session

        State(get_spark_session(spark_memory=2, shuffle_partitions=2))
        self.frame, self.dataset, self.kind = pd.DataFrame, Dataset, LinUCB
        dim = task.vectors.shape[1]
        number, name = FeatureType.NUMERICAL, FeatureType.CATEGORICAL
        known = [
            FeatureInfo("user", name, FeatureHint.QUERY_ID),
            FeatureInfo("item", name, FeatureHint.ITEM_ID),
            FeatureInfo("reward", number, FeatureHint.RATING),
        ]
        known += [FeatureInfo(f"i{j}", number, feature_source=FeatureSource.ITEM_FEATURES) for j in range(dim)]
        known += [FeatureInfo(f"u{j}", number, feature_source=FeatureSource.QUERY_FEATURES) for j in range(dim + 1)]
        self.schema = FeatureSchema(known)
        self.goods = pd.DataFrame(task.vectors, columns=[f"i{j}" for j in range(dim)]).assign(item=range(task.items))
        self.events: list[tuple[int, int, float]] = [(0, 0, 0.0)]

    def data(self) -> Any:
        profiles = np.concatenate([self.profile(user) for user in range(self.task.users)])
        people = self.frame(profiles, columns=[f"u{j}" for j in range(profiles.shape[1])])
        # It takes one event per user and item, and users in order.
        events = self.frame(self.events, columns=["user", "item", "reward"])
        events = events.groupby(["item", "user"], as_index=False).mean().sort_values("user")
        return self.dataset(
            feature_schema=self.schema,
            interactions=events,
            item_features=self.goods,
            query_features=people.assign(user=range(self.task.users)),
            categorical_encoded=True,
        )

    def begin(self, turn: int) -> None:
        self.turn = turn
        if turn % self.every:
            return
        data = self.data()
        data.to_spark()
        model = self.kind(eps=ALPHA, alpha=1.0)
        model.fit(data)
        told = model.predict(
            data, k=self.shown, queries=list(range(self.task.users)), filter_seen_items=False
        ).toPandas()
        best = told.sort_values("reward", ascending=False).groupby("user")["item"].apply(list)
        self.lists = [best[user] for user in range(self.task.users)]

    def choose(self, user: int) -> int:
        mine = self.lists[user]
        return int(mine[self.turn % len(mine)])

    def learn(self, user: int, row: int, reward: float) -> None:
        self.events.append((user, row, reward))
        self.note(user, row, reward)
