"""`turnout serve` on the command line: parse, call, print."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def serve(config: Path, /, *, host: str | None = None, port: int | None = None, log: str | None = None) -> int:
    """Serve models on the Open Inference Protocol, each request routed to the pool that should take it.

    Once every replica is up, one JSON line with the address is printed. SIGTERM or SIGINT drains, and exits with 0.

    Args:
        config: The TOML file (see docs/serve.md).
        host: Address to listen on, in place of the config's.
        port: TCP port, in place of the config's; 0 takes a free one.
        log: Folder of the event log, in place of the config's; "" keeps none.
    """
    from msgspec.json import encode

    from turnout import config as settings
    from turnout import serve as verb

    sys.path.insert(0, str(Path.cwd()))  # module:function names the user's own file
    flags = {"gateway.host": host, "gateway.port": port, "gateway.log": None if log is None else _absolute(log)}
    chosen = settings.load(config, os.environ, {name: value for name, value in flags.items() if value is not None})

    def announce(gateway: verb.Gateway) -> None:
        ready = {"ready": True, "url": gateway.url, "port": gateway.port, "log": str(gateway.log_path or "")}
        print(encode(ready).decode(), flush=True)

    return verb.run(chosen, announce)


def _absolute(path: str) -> str:
    """A path given as a flag is relative to the working directory, unlike one in a config file."""
    return str(Path(path).absolute()) if path else ""
