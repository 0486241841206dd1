"""One line of nginx's or Envoy's text logs to its fields, named as their documentation names them.

nginx: the predefined `combined` format (module ngx_http_log_module), which may be followed by `$request_time`,
`$upstream_response_time` and `$upstream_addr`, bare in that order or as `name=value` in any. Envoy: the default format
string of its access log, also with the three fields that Istio adds behind the response flags.
"""

from __future__ import annotations

import re

_QUOTED = r'"((?:[^"\\]|\\.)*)"'

_COMBINED = re.compile(rf"^(\S+) \S+ (.+?) \[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED})?(.*)$")

_ENVOY = re.compile(
    rf'^\[([^\]]+)\] "(\S+) (\S*) ([^"]*)" (\d+) (\S+)(?: \S+ \S+ {_QUOTED})? (\d+) (\d+) (\d+|-) (\S+)'
    rf" {_QUOTED} {_QUOTED} {_QUOTED} {_QUOTED} {_QUOTED}(?: .*)?$"
)

_TOKEN = re.compile(r'(?:([A-Za-z_]\w*)=)?("(?:[^"\\]|\\.)*"|\S+)')
_SECONDS = re.compile(r"^(?:\d+(?:\.\d+)?|-)(?:,(?:\d+(?:\.\d+)?|-))*$")
_ADDRESS = re.compile(r"^(?:\S+:\d+|unix:\S+)(?:,\S+)*$")

_SHORT = {"rt": "request_time", "urt": "upstream_response_time", "ua": "upstream_addr", "upstream": "upstream_addr"}
"""Names that are common in `name=value` log formats."""


def is_combined(line: str) -> bool:
    """Whether a line looks like nginx's `combined` format, with or without more behind it."""
    return _COMBINED.match(line) is not None


def is_envoy(line: str) -> bool:
    """Whether a line looks like Envoy's default format."""
    return _ENVOY.match(line) is not None


def combined(line: str) -> dict[str, str] | None:
    """The fields of a `combined` line; None if it is none."""
    found = _COMBINED.match(line)
    if found is None:
        return None
    address, user, at, request, status, sent, referer, agent, rest = found.groups()
    fields = {
        "remote_addr": address,
        "remote_user": user,
        "time_local": at,
        "request": request,
        "status": status,
        "body_bytes_sent": sent,
        "http_referer": referer or "-",
        "http_user_agent": agent or "-",
    }
    fields.update(_behind(rest))
    for name, value in list(fields.items()):
        if name == "upstream_response_time":
            fields[name] = _total(value)
        elif name == "upstream_addr":
            fields[name] = value.rpartition(",")[2]  # the server that gave the answer comes last
    return fields


def _behind(rest: str) -> dict[str, str]:
    """What stands behind the combined fields. Where a request was tried on several servers, nginx separates them by
    ", ", and groups of servers by " : ".
    """  # noqa: D205
    joined = re.sub(r"\s*,\s*|\s+:\s+", ",", rest)
    fields: dict[str, str] = {}
    for name, token in _TOKEN.findall(joined):
        value = token.strip('"')
        if name:
            fields[_SHORT.get(name, name)] = value
        elif _SECONDS.match(value) and (value != "-" or "request_time" in fields):
            fields.setdefault("upstream_response_time" if "request_time" in fields else "request_time", value)
        elif _ADDRESS.match(value):
            fields.setdefault("upstream_addr", value)
    return fields


def _total(seconds: str) -> str:
    """All tries of a request added up; "-" if there was none."""
    tries = [float(part) for part in seconds.split(",") if part not in {"-", ""}]
    return str(sum(tries)) if tries else "-"


def envoy(line: str) -> dict[str, str] | None:
    """The fields of a line in Envoy's default format; None if it is none."""
    found = _ENVOY.match(line)
    if found is None:
        return None
    names = (
        "start_time", "method", "path", "protocol", "response_code", "response_flags", "", "bytes_received",
        "bytes_sent", "duration", "x_envoy_upstream_service_time", "x_forwarded_for", "user_agent", "x_request_id",
        "authority", "upstream_host",
    )  # fmt: skip
    return {name: value for name, value in zip(names, found.groups(), strict=True) if name}
