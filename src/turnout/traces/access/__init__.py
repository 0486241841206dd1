"""Access logs of any server as columns: JSON lines, CSV, Parquet, nginx, Envoy and OTLP JSON, told by their content.

`read` does it all; `mapping` says which column is what, `formats` and `lines` turn a file into rows. It knows nothing
of fleets, objectives or money. Rules: a row that cannot be read is refused with its file and line, or counted when the
caller asks for that; every guess (a unit, which column, when a time was taken) is in the log's notes.
"""

from __future__ import annotations

from turnout.traces.access.log import AccessLog
from turnout.traces.access.mapping import Column, parse_map
from turnout.traces.access.read import read

__all__ = ["AccessLog", "Column", "parse_map", "read"]
