"""`turnout replay` on the command line: parse, call, print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnout.cli import flags
from turnout.cli.flags import Many, Switch
from turnout.cli.terminal import answer, document
from turnout.errors import CheckFailedError, ConfigError


def replay(
    log: Path,
    /,
    *,
    add: Many = (),
    policy: str = "",
    params: str = "",
    ignore_truncated_tail: Switch = False,
    json: Switch = False,
) -> int:
    """Prove that a recorded log replays to the identical actions; or ask what another fleet would have made of it.

    Args:
        log: A log segment, or a folder of them.
        add: POOL=N gives a pool of the log N more replicas (N may be negative); or a TOML file with [[pools]] to add.
        policy: Another policy for the same traffic.
        params: The policy's parameters as TOML, such as 'items = 64' or 'pools = ["gpu"]'.
        ignore_truncated_tail: Read a log that a crash cut off, without its last event.
        json: Print one JSON document.
    """
    from turnout import policies
    from turnout import replay as verb

    if params and not policy:
        raise ConfigError("--params are those of --policy, which is not given")
    if add or policy:
        return _what_if(
            log, add, policy, flags.toml("--params", params), ignore_truncated_tail=ignore_truncated_tail, json=json
        )
    result = verb.verify(log, policies.load, ignore_truncated_tail=ignore_truncated_tail)
    if json:
        document(result)
    elif result.identical:
        print(f"identical: {result.events} events, {result.actions} actions, digest {result.replayed_digest}")
    else:
        assert result.difference is not None
        print(f"DIFFERENT from {result.difference.path}, line {result.difference.line} on:")
        print(f"  event     {result.difference.event}")
        print("  recorded  " + "\n            ".join(result.difference.recorded or ("nothing",)))
        print("  replayed  " + "\n            ".join(result.difference.replayed or ("nothing",)))
    return 0 if result.identical else CheckFailedError.exit_code


def _what_if(
    log: Path, add: Sequence[str], policy: str, params: dict[str, Any], *, ignore_truncated_tail: bool, json: bool
) -> int:
    """The recorded traffic on another fleet or under another policy."""
    from turnout import policies, simulate
    from turnout import replay as verb
    from turnout.replay.text import show

    recording = verb.record(log, ignore_truncated_tail=ignore_truncated_tail)
    replicas, pools = _additions(add, recording.configured.models)

    def run(configured: Any, arrivals: Any, faults: Any, latency: Any) -> Any:
        draws = {key: simulate.from_model(model) for key, model in latency.items()}
        return simulate.run(configured, arrivals, draws, policies.load, faults=faults)

    asked = verb.what_if(recording, run, add=pools, replicas=replicas, policy=policy or None, params=params)
    answer(asked, show, json=json)
    return 0


def _additions(add: Sequence[str], workloads: Sequence[Any]) -> tuple[dict[str, int], list[Any]]:
    """What `--add` names: more replicas by pool, and the pools of TOML files."""
    from turnout import config, store
    from turnout.core.profile import Profile

    models = {w.name: config.Weights(path="", digest=w.digest) for w in workloads}
    replicas: dict[str, int] = {}
    pools = []
    for text in add:
        name, _, count = text.rpartition("=")
        if name and re.fullmatch("[+-]?[0-9]{1,9}", count):
            replicas[name] = replicas.get(name, 0) + int(count)
        elif text.endswith(".toml"):
            chosen = config.load_pools(Path(text))
            pools += config.resolve_pools(chosen, lambda path: store.load(path, Profile), models)
        else:
            raise ConfigError(f"--add {text!r} is neither POOL=N, such as cpu=2, nor a .toml file with [[pools]]")
    return replicas, pools
