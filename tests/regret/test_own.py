"""What they run, from a config, from published tables, and from the log; and what is said when it cannot be known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.regret.requests import log, served
from turnout.errors import ConfigError
from turnout.regret import own
from turnout.regret.own import Objective, Said

SLO = Objective(deadline_s=0.1)

TOML = """
[[models]]
name = "rank"
slo = { deadline_ms = 80, attainment = 0.95 }
mergeable = false
max_parts = 3

[[pools]]
name = "gpu"
device = "cuda"
backend = "simulated"
models = ["rank"]
replicas = 2
max_items = 128
latency = { a_s = 0.01, b_s_per_item = 0.0001 }
price = { usd_per_h = 0.5 }
"""


def test_pools_of_backends():
    """A backend is of the pool of its name, a numbered replica of it, or what its pattern fits; else none is known."""
    table = served(10)
    assert own.pools_of(table, ["gpu", "cpu"], {}) == ("gpu", "cpu", "cpu")
    assert own.pools_of(table, ["gpu"], {}) is None
    assert own.pools_of(table, ["a", "b"], {"a": "g*", "b": "cpu-?"}) == ("a", "b", "b")
    assert own.pools_of(replace(table, backends=()), ["gpu"], {}) is None


def test_a_config_says_all(tmp_path):
    """Pools, prices, parts and objective come from the file; flags override the objective; one model needs no name."""
    path = tmp_path / "fleet.toml"
    path.write_text(TOML)
    table = served(10)
    found = own.from_config(path, table, Objective(), {"gpu": "*"})
    assert [w.slo.deadline_s for w in found.head.models] == [0.08]
    assert (found.attainment, found.max_parts, found.head.models[0].mergeable) == (0.95, 3, False)
    assert found.head.models[0].name == "m"
    assert found.pools[0].models == ("m",)
    assert found.pool_of == ("gpu", "gpu", "gpu")
    assert found.draws["gpu", "m"](100, 0, 0.0) == pytest.approx(0.02)
    assert own.from_config(path, table, Objective(deadline_s=0.2, attainment=0.5), {}).attainment == 0.5


def test_a_model_that_the_config_lacks_is_named(tmp_path):
    """Also when the log has several and the config one."""
    path = tmp_path / "fleet.toml"
    path.write_text(TOML)
    table = replace(served(10), models=("rank", "embed"))
    with pytest.raises(ConfigError, match=r"not among \[\[models\]\] of .*: rank"):
        own.from_config(path, table, SLO, {})


def test_published_tables():
    """Instances and prices by flags, service times by the table that ships."""
    said = Said(counts={"g4dn.xlarge": 2, "r5n.large": 9}, prices={"g4dn.xlarge": 0.5, "r5n.large": 0.1}, patterns={})
    found = own.from_published("rm2", said, served(10), SLO)
    assert [p.replicas for p in found.pools] == [2, 9]
    assert found.draws["r5n.large", "m"](100, 1, 0.0) > found.draws["g4dn.xlarge", "m"](100, 1, 0.0)
    assert "published" in found.service_times


@pytest.mark.parametrize(
    ("model", "counts", "prices", "said"),
    [
        ("gpt", {}, {}, "the tables have dien, mtwnd"),
        ("rm2", {"h100": 1}, {"h100": 1.0}, "the tables of rm2 have g4dn.xlarge, r5n.large"),
        ("rm2", {"r5n.large": 1}, {}, "add --price r5n.large=DOLLARS_PER_HOUR"),
        ("rm2", {}, {}, "--published needs --fleet"),
    ],
)
def test_what_the_tables_do_not_have(model, counts, prices, said):
    """The message says what there is, or which flag is missing."""
    with pytest.raises(ConfigError, match=said):
        own.from_published(model, Said(counts=counts, prices=prices, patterns={}), served(10), SLO)


def test_from_the_log_itself():
    """Machines are counted from the log, the fastest on large requests is the accelerator, and the error is said."""
    found = own.from_log(Said(counts={}, prices={"gpu": 0.5, "cpu": 0.1}, patterns={}), served(900), SLO)
    assert [(p.name, p.device, p.replicas) for p in found.pools] == [("gpu", "cuda", 1), ("cpu", "cpu", 2)]
    assert found.fits is not None
    assert found.fits["gpu"].error < 0.01
    assert "gpu is taken for the accelerator" in found.notes[0]
    more = own.from_log(Said(counts={"cpu": 5}, prices={"gpu": 0.5, "cpu": 0.1}, patterns={}), served(900), SLO)
    assert more.pools[1].replicas == 5


@pytest.mark.parametrize(
    ("table", "prices", "objective", "said"),
    [
        (log([0.0], [1], [0.1], backends=()), {"gpu": 1.0}, SLO, "--map backend=COLUMN"),
        (served(300), {"gpu": 1.0}, SLO, r"2 backends of the log belong to no pool: cpu-0, cpu-1"),
        (served(300), {"gpu": 1.0, "cpu": 1.0, "tpu": 1.0}, SLO, "no backend of the log belongs to it"),
        (served(300), {"gpu": 1.0, "cpu": 1.0}, Objective(), "add --slo-ms"),
    ],
)
def test_what_a_log_does_not_say(table, prices, objective, said):
    """Each gap has its flag in the message."""
    with pytest.raises(ConfigError, match=said):
        own.from_log(Said(counts={}, prices=prices, patterns={}), table, objective)


def test_sizes_beyond_what_a_pool_served_are_said():
    """They are extrapolated along the curve, and the note names the pool."""
    table = served(900)
    items = np.where((table.backend != 0) & (table.items == 64), 16, table.items)
    found = own.from_log(
        Said(counts={}, prices={"gpu": 0.5, "cpu": 0.1}, patterns={}),
        replace(table, items=items, service_s=np.where(table.backend != 0, 0.002 + 0.001 * items, table.service_s)),
        SLO,
    )
    assert any("extrapolated: cpu (16)" in note for note in found.notes)
