"""Counts for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from treeward.serve.service import Service

_STEPS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """What there is to know of a running service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        requests = Counter(
            "treeward_requests", "Requests by route and status.", ("route", "status"), registry=self._registry
        )
        seconds = Histogram(
            "treeward_request_seconds", "Time to answer.", ("route",), buckets=_STEPS, registry=self._registry
        )
        self._requests, self._seconds = requests, seconds
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._gauges = {
            name: Gauge(f"treeward_{name}", about, registry=self._registry)
            for name, about in (
                ("decisions", "Items recommended since the start."),
                ("users", "Users with events."),
                ("waiting_requests", "Requests that wait for a decision."),
                ("waiting_rewards", "Rewards that wait to be recorded."),
                ("store_waiting_writes", "Writes that are not on disk yet."),
                ("store_commits", "Commits since the start."),
                ("store_ok", "1 as long as the store takes writes."),
                ("matched_decisions", "Decisions of an apprentice that were what the caller showed."),
                ("compared_decisions", "Decisions of an apprentice."),
            )
        }

    def seen(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        held = self._by_route.get((route, status))
        if held is None:
            held = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._by_route[route, status] = held
        held[0].inc()
        held[1].observe(seconds)

    def text(self, asks: int, rewards: int) -> bytes:
        """Return what Prometheus reads."""
        store = self._service.explorer.store
        values = {
            "decisions": self._service.decisions,
            "users": sum(1 for _ in store.users()),
            "waiting_requests": asks,
            "waiting_rewards": rewards,
            "store_waiting_writes": getattr(store, "waiting", 0),
            "store_commits": getattr(store, "commits", 0),
            "store_ok": getattr(store, "failed", None) is None,
            "matched_decisions": self._service.matched,
            "compared_decisions": self._service.compared,
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self._registry)
