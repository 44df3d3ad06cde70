from prometheus_client.parser import text_string_to_metric_families

from meshcache.observe.exposition import render
from meshcache.observe.metrics import CATALOGUE, EMPTY, Metrics


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_page_has_every_metric_with_its_help():
    page = render(EMPTY, "1.2.3").decode()
    for definition in CATALOGUE.values():
        assert f"# HELP meshcache_{definition.name} {definition.help}" in page
    assert 'meshcache_build_info{version="1.2.3"} 1.0' in page


def test_values_appear_under_their_labels():
    metrics = Metrics()
    metrics.inc("requests_total", ("hit", "", "hot", 'a "route"\n', "b"), 3)
    metrics.set("tier_breaker_open", ("warm",), 1)
    found = samples(render(metrics.snapshot(), "1"))
    labels = (("arm", "b"), ("decision", "hit"), ("reason", ""), ("route", 'a "route"\n'), ("tier", "hot"))
    assert found["meshcache_requests_total", labels] == 3
    assert found["meshcache_tier_breaker_open", (("tier", "warm"),)] == 1


def test_histogram_is_cumulative_and_ends_in_its_count():
    metrics = Metrics()
    for seconds in (0.00001, 0.003, 0.003, 99.0):
        metrics.observe("request_stage_seconds", ("store",), seconds)
    found = samples(render(metrics.snapshot(), "1"))
    name = "meshcache_request_stage_seconds"
    buckets = [value for (sample, _), value in found.items() if sample == f"{name}_bucket"]
    assert buckets == sorted(buckets)
    assert found[f"{name}_bucket", (("le", "0.005"), ("stage", "store"))] == 3
    assert found[f"{name}_bucket", (("le", "+Inf"), ("stage", "store"))] == 4
    assert found[f"{name}_count", (("stage", "store"),)] == 4
    assert found[f"{name}_sum", (("stage", "store"),)] > 99
