"""What Prometheus scrapes: the counters of the event log's records, in base units.

A collector reads the plain totals of `telemetry.Counters` when somebody scrapes; nothing is counted twice and the
request path knows nothing of Prometheus. Labels are names from the config, reject reasons and statuses only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnout.telemetry import Counters, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class GatewayCollector(Collector):
    """Renders the totals as metric families."""

    def __init__(self, counters: Counters, http_statuses: Mapping[int, int]) -> None:
        """`http_statuses` counts the answers of the infer route by status."""
        self._counters = counters
        self._http_statuses = http_statuses

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._requests()
        yield from self._batches()
        counters = self._counters
        yield GaugeMetricFamily("turnout_requests_unanswered", "Requests that wait or run.", value=counters.unanswered)
        yield GaugeMetricFamily("turnout_batches_in_flight", "Batches on replicas.", value=counters.in_flight)
        replicas = GaugeMetricFamily("turnout_replicas_up", "Replicas that take batches.", labels=["pool"])
        for pool, names in counters.replicas.items():
            replicas.add_metric([pool], len(names))
        yield replicas
        yield CounterMetricFamily(
            "turnout_choices_refused", "Choices of the policy that broke a rule.", value=counters.refused
        )

    def _requests(self) -> Iterator[Metric]:
        counters = self._counters
        requests = CounterMetricFamily(
            "turnout_requests", "Requests answered, by outcome.", labels=["model", "outcome"]
        )
        for (model, outcome), count in counters.requests.items():
            requests.add_metric([model, outcome], count)
        yield requests
        statuses = CounterMetricFamily(
            "turnout_http_responses", "Answers of the infer route, by status.", labels=["status"]
        )
        for status, count in self._http_statuses.items():
            statuses.add_metric([str(status)], count)
        yield statuses
        yield _histogram("turnout_request_seconds", "From arrival to answer.", "model", counters.request_s)

    def _batches(self) -> Iterator[Metric]:
        counters = self._counters
        for name, text, by_pool in (
            ("turnout_dispatch", "Batches sent to a replica.", counters.dispatches),
            ("turnout_batches_finished", "Batches that brought a result.", counters.finished),
            ("turnout_batches_failed", "Batches that brought none.", counters.failed),
            ("turnout_batches_covered", "Batches that took no longer than the predicted p99.", counters.covered),
        ):
            family = CounterMetricFamily(name, text, labels=["pool"])
            for pool, count in by_pool.items():
                family.add_metric([pool], count)
            yield family
        busy = CounterMetricFamily("turnout_busy_seconds", "Seconds of service of all replicas.", labels=["pool"])
        for pool, seconds in counters.busy_s.items():
            busy.add_metric([pool], seconds)
        yield busy
        yield _histogram("turnout_batch_items", "Items per batch.", "pool", counters.batch_items)


def render(counters: Counters, http_statuses: Mapping[int, int]) -> bytes:
    """The scrape's body in the text format."""
    registry = CollectorRegistry()
    registry.register(GatewayCollector(counters, http_statuses))
    return generate_latest(registry)


def _histogram(name: str, text: str, label: str, histograms: Mapping[str, Histogram]) -> HistogramMetricFamily:
    """A family of cumulative histograms."""
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, histogram in histograms.items():
        total, buckets = 0, []
        for bound, count in zip((*map(repr, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([value], buckets, sum_value=histogram.total)
    return family
