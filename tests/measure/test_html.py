"""The duel's page shows what the duel found: every contender, price and limit, each figure with its origin."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duels import AGREES, DISAGREES, duel, entry
from turnout import webpage
from turnout.measure import html
from turnout.measure.artefact import Branching


@pytest.fixture(scope="module")
def found():
    """A CPU, a variant of it that disagrees, and a GPU that tells its phases apart."""
    branching = Branching(share=0.3, operators={"Gather": 0.3}, tensor={"MatMul": 0.7}, source="profile of one run")
    return duel(
        entry("cpu fp32", lambda n: 1e-3 * n, threads=1, parity=None),
        entry("cpu int8", lambda n: 5e-4 * n, threads=1, parity=DISAGREES),
        entry("cuda fp32", lambda n: 8e-3 + 1e-5 * n, parity=AGREES),
        branching=branching,
    )


def test_the_page_shows_the_whole_duel(found):
    """Headline, crossovers, bottleneck, warnings, each contender's row and each price."""
    page = html.render(found)
    said = [found.verdict.headline, found.verdict.bottleneck, *found.verdict.warnings]
    said += [c.text for c in found.verdict.crossovers]
    assert all(webpage.text(words) in page for words in said)
    assert page.count("<td>cuda fp32</td>") == len(found.entries[0].profile.samples)
    assert all(webpage.text(price.source) in page for price in found.prices)
    assert "not priced" not in page


def test_every_block_with_figures_names_their_origin(found):
    """Each section but the provenance has a label."""
    sections = re.findall(r"<section.*?</section>", html.render(found), re.DOTALL)
    assert len(sections) == 6
    unlabelled = [section for section in sections if "measured here" not in section]
    assert ["Provenance" in section for section in unlabelled] == [True]


def test_a_contender_that_disagrees_is_struck_through_and_never_best(found):
    """Faster at every size, and still no row of it is green."""
    rows = re.findall(r'<tr class="(\w*)"><td>cpu int8</td>', html.render(found))
    assert set(rows) == {"barred"}


def test_a_colour_is_one_contenders(found):
    """The same contender has the same colour in every figure."""
    shades = html.colours(found)
    drawn = [html.curves(found, shades, field)["data"] for field in ("seconds", "usd_per_million")]
    assert all(trace["line"]["color"] == shades[trace["name"].split(" (")[0]] for traces in drawn for trace in traces)
    assert len(set(shades.values())) == len(found.entries)


def test_a_figure_without_data_is_left_out():
    """A duel without prices or operators has no empty chart of them."""
    page = html.render(duel(entry("cpu fp32", lambda n: 1e-3 * n, parity=None), prices=()))
    assert 'id="latency"' in page
    assert 'id="cost"' not in page
    assert 'id="operators"' not in page


@given(st.floats(1e-6, 10.0))
def test_error_bars_reach_the_interval(seconds):
    """Mid less the lower bar and plus the upper bar are the ends of the 95 % interval, in milliseconds."""
    found = duel(entry("cpu fp32", lambda n: seconds, parity=None))
    trace = html.curves(found, html.colours(found), "seconds")["data"][0]
    for row, mid, up, down in zip(
        found.verdict.rows, trace["y"], trace["error_y"]["array"], trace["error_y"]["arrayminus"], strict=True
    ):
        assert mid + up == pytest.approx(row.seconds.high * 1e3)
        assert mid - down == pytest.approx(row.seconds.low * 1e3)
