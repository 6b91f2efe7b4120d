"""Metrics for Prometheus."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from treeward.serve.groups import GROUPS
from treeward.serve.service import Served

STEPS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
"""Upper edges of the histogram of response times, in seconds."""
_GROUPED = {
    "decisions": "Items recommended, by group of users; all workers.",
    "rewards": "Decisions that got a reward, default rewards included, by group of users; all workers.",
    "earned": "Sum of all rewards, by group of users; all workers.",
}
_SINGLE = {
    "matched": "Decisions in the mode apprentice that were the caller's own item; all workers.",
    "compared": "Decisions in the mode apprentice; all workers.",
}


class Metrics(Collector):
    """Counts requests, and reports them together with what the service and the store count."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests: dict[tuple[str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self.features: dict[str, int] = {}
        """How many features of contexts the routes of Personalizer used, and ignored; empty where they are off."""
        self._gauges = {
            name: Gauge(f"treeward_{name}", about, registry=self._registry)
            for name, about in (
                ("users", "Users with events."),
                ("waiting_requests", "Requests that wait for a decision."),
                ("waiting_rewards", "Rewards that wait to be recorded."),
                ("store_waiting_writes", "Writes that are not on disk yet."),
                ("store_commits", "Commits since the start."),
                ("store_ok", "1 as long as the store takes writes."),
                ("crowd_edition", "Number of the crowd's edition; 0: there is no crowd."),
                ("crowd_rewards", "Rewards in the edition."),
                ("crowd_publish_seconds", "Seconds it took to make the last edition."),
                ("crowd_waiting", "Rewards, and changes of rewards, since the edition."),
                ("crowd_age_seconds", "Seconds since the edition was made."),
            )
        }

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one request; not with the library's counter and histogram, which take ten times as long."""
        self._requests[route, status] = self._requests.get((route, status), 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = [0] * (len(STEPS) + 1)
            self._seconds[route] = 0.0
        times[bisect_left(STEPS, seconds)] += 1
        self._seconds[route] += seconds

    def times(self, route: str) -> list[int]:
        """Return the histogram of response times of a route."""
        return list(self._times.get(route) or [0] * (len(STEPS) + 1))

    def refused(self) -> int:
        """Return how many requests were answered with 429 or 5xx."""
        return sum(count for (_, status), count in list(self._requests.items()) if status == 429 or status >= 500)

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are not known beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the metrics that are not gauges."""
        requests = CounterMetricFamily("treeward_requests", "Requests by route and status.", labels=("route", "status"))
        for (route, status), count in sorted(self._requests.items()):
            requests.add_metric((route, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily("treeward_request_seconds", "Time to answer.", labels=("route",))
        for route, times in sorted(self._times.items()):
            upto = list(accumulate(times))
            names = [*(str(float(step)) for step in STEPS), "+Inf"]
            seconds.add_metric((route,), list(zip(names, upto, strict=True)), self._seconds[route])
        yield seconds
        if self.features:
            about = "Features of contexts in the requests of Personalizer."
            features = CounterMetricFamily("treeward_personalizer_features", about, labels=("use",))
            for use, count in self.features.items():
                features.add_metric((use,), count)
            yield features
        counts = self._served.service.groups.counts
        for name, about in _GROUPED.items():
            # A gauge, since rewards may be negative or changed: the sum may fall.
            kind = GaugeMetricFamily if name == "earned" else CounterMetricFamily
            family = kind(f"treeward_{name}", about, labels=("group",))
            for group in GROUPS:
                family.add_metric((group,), counts.total(name, group))
            yield family
        for name, about in _SINGLE.items():
            yield CounterMetricFamily(f"treeward_{name}_decisions", about, value=counts.total(name))

    def text(self, asks: int, rewards: int) -> bytes:
        """Return all metrics in the text format."""
        store = self._served.store.status()
        values = {
            "users": store.users,
            "waiting_requests": asks,
            "waiting_rewards": rewards,
            "store_waiting_writes": store.waiting,
            "store_commits": store.commits,
            "store_ok": store.problem is None,
            **{f"crowd_{name}": value for name, value in self._served.service.publisher.measured().items()},
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self._registry)
