"""A page is one file that fetches nothing, shows words as words, and says where its figures come from."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import webpage

FIGURE = {"data": [{"type": "bar", "x": [1], "y": ["a"]}], "layout": {"height": 100}}
HOSTILE = "</script><!--<script>alert(1)</script>"


def page(title="t", headline="h", origin="modelled", body="", figures=None):
    """A page without plotly's script, which is long and not ours."""
    return webpage.render(title, headline, origin, body, figures or {}).replace(webpage.plotly_js(), "")


def figures_in(html):
    """The figures as the browser's JavaScript reads them."""
    return json.loads(re.search(r"^const figures = (.*);$", html, re.MULTILINE)[1])


def test_a_page_fetches_nothing():
    """No address, no link, no source; and the browser is told to refuse what a script might still ask for."""
    html = page(body=webpage.place("f", FIGURE), figures={"f": FIGURE})
    assert not re.search(r"https?:|//\w+\.\w|src=|@import|url\(", html)
    assert re.findall(r'href="([^"]*)"', html) == ["data:,"]
    assert "default-src 'none'" in html


@given(st.text() | st.just(HOSTILE))
def test_words_stay_words(words):
    """Whatever a model is called, no view of it opens or closes an element."""
    html = "".join(
        (
            webpage.paragraph(words, words),
            webpage.listing([words], "warning"),
            webpage.table([words], [[words]], ["best"]),
            webpage.section(words, words, ""),
        )
    )
    ours = {"p", "span", "ul", "li", "div", "table", "tr", "th", "td", "section", "h2"}
    assert set(re.findall(r"<\W*(\w*)", html)) <= ours
    assert webpage.text(words) in html


def test_a_hostile_figure_cannot_end_its_script():
    """The page has its two scripts and no more, and the figure still reads as it was given."""
    figure = FIGURE | {"data": [{"name": HOSTILE}]}
    html = page(title=HOSTILE, headline=HOSTILE, figures={"f": figure})
    assert html.count("<script") == html.count("</script") == 2
    assert "<!--" not in html
    assert figures_in(html) == {"f": figure}


@pytest.mark.parametrize("origin", ["measured here", "measured elsewhere", "modelled"])
def test_the_origin_is_shown(origin):
    """Beside the headline, a section's title or a paragraph; and no empty frame where there is none."""
    label = f'<span class="origin">{origin}</span>'
    assert label in page(origin=origin)
    assert label in webpage.section("t", origin, "")
    assert label in webpage.paragraph("p", origin)
    assert "origin" not in webpage.section("t", "", "") + webpage.paragraph("p")


def test_a_figure_has_its_place():
    """The element that the page's script draws into has the figure's name and height."""
    assert webpage.place("f", FIGURE) == '<div class="figure" id="f" style="height: 100px"></div>'


def test_nothing_to_list_is_nothing():
    """An empty list leaves no mark on the page."""
    assert webpage.listing([]) == ""
