"""The gateway: the Open Inference Protocol in front, the router in the middle, pools of replicas behind.

    protocol   bytes to tensors and back; framework-free
    axes       which axis counts items, and when that is too unsure to merge by
    batches    requests' tensors to a batch's, and its outputs back to theirs
    driver     the live driver of the router: ticks, the log, replicas, answers; no HTTP
    receipts   why each request went where it went
    metrics    what Prometheus scrapes
    app        the infer route, and what a refusal is answered with
    pages      every other route
    gateway    the whole life: bind, load, serve, drain

`run` serves until it is told to stop; `running` is the same as a context, for tests and programs.
"""

from __future__ import annotations

from turnout.errors import ExtraMissingError

try:
    from turnout.serve.gateway import Gateway, run, running
except ModuleNotFoundError as missing:
    raise ExtraMissingError(str(missing.name), "serve", "the gateway") from missing

__all__ = ["Gateway", "run", "running"]
