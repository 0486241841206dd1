"""Lines of nginx and Envoy, as their documentation has them and as people change them."""

from __future__ import annotations

import pytest

from turnout.traces.access import lines

COMBINED = '10.0.0.9 - bob [10/Oct/2026:13:55:36 +0200] "POST /rank HTTP/1.1" 200 2326 "-" "curl/8.0"'
ENVOY = (
    '[2026-04-15T20:17:00.310Z] "POST /api HTTP/2" 204 - 154 7 226 100 "10.0.35.28" "agent" "id" "locations" '
    '"tcp://10.0.2.1:80"'
)


@pytest.mark.parametrize(
    "behind",
    [
        " 0.120 0.118 10.0.0.1:80",
        ' "0.120" "0.118" "10.0.0.1:80"',
        ' "10.0.0.7" rt=0.120 uct="0.001" urt="0.118" ua="10.0.0.1:80"',
        " request_time=0.120 upstream_response_time=0.118 upstream_addr=10.0.0.1:80",
        ' "-" 10.0.0.1:80 0.120 0.118',
    ],
)
def test_what_stands_behind_the_combined_format(behind):
    """Bare values are told by their form, named ones by their names, whatever stands between them."""
    fields = lines.combined(COMBINED + behind)
    assert (fields["request_time"], fields["upstream_response_time"], fields["upstream_addr"]) == (
        "0.120",
        "0.118",
        "10.0.0.1:80",
    )


def test_a_request_that_was_tried_on_several_servers():
    """The times of all tries add up, and the last server is the one that answered."""
    fields = lines.combined(COMBINED + " 0.120 0.010, 0.008 : 0.1 10.0.0.1:80, 10.0.0.2:80 : 10.0.1.1:80")
    assert float(fields["upstream_response_time"]) == pytest.approx(0.118)
    assert fields["upstream_addr"] == "10.0.1.1:80"


def test_escaped_quotes_do_not_end_a_field():
    """A quoted field may have quotes in it, behind a backslash."""
    fields = lines.combined(COMBINED.replace("/rank", '/rank?x=\\"y\\"') + " 0.1")
    assert fields["request"] == 'POST /rank?x=\\"y\\" HTTP/1.1'
    assert fields["status"] == "200"


def test_the_plain_combined_format_has_no_times():
    """Without more behind it there is no request_time, so that the reader can say that it is missing."""
    assert "request_time" not in lines.combined(COMBINED)


def test_envoys_default_format():
    """Every field lands under its name, in Envoy's own default format and in Istio's."""
    plain = lines.envoy(ENVOY)
    istio = lines.envoy(ENVOY.replace(" 204 - ", ' 204 - via_upstream - "-" '))
    assert plain == istio
    assert (plain["start_time"], plain["response_code"], plain["duration"], plain["upstream_host"]) == (
        "2026-04-15T20:17:00.310Z",
        "204",
        "226",
        "tcp://10.0.2.1:80",
    )


@pytest.mark.parametrize("line", ["", "hello", '{"a": 1}', "a,b,c", ENVOY[:60], COMBINED[:40]])
def test_other_lines_are_none_of_either(line):
    """A line of another form, or one cut short, is not taken for one."""
    assert lines.combined(line) is None
    assert lines.envoy(line) is None
