"""The command line: one function per verb, which parses, calls and prints. Nothing is computed here.

Results go to stdout (`--json`: one JSON document), progress and complaints to stderr. Exit codes are those of
`errors`; SIGINT is 130 and SIGTERM 143. Heavy modules are imported in the verb that needs them.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

import turnout
from turnout import cli_fit, cli_regret, cli_simulate
from turnout.errors import CheckFailedError, ConfigError, TurnoutError

app = App(
    name="turnout",
    help="Measure AI work on CPU and GPU, plan the cheapest fleet that meets the deadline, and route requests to it.",
    version=turnout.__version__,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(show_default=lambda value: str(value) if value else None),
)

cli_fit.register(app)
cli_regret.register(app)
cli_simulate.register(app)

USAGE = 2
INTERRUPTED = 130
TERMINATED = 143
UNEXPECTED = 1


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DuelFlags:
    """Who takes part in a duel, and for how long."""

    devices: str = "auto"
    """Comma-separated: auto, cpu, cuda, webgpu, torch:cpu, torch:cuda. A device named is demanded."""
    batch: str = ""
    """Comma-separated batch sizes; 1 to 64 in powers of two, as far as the budget goes."""
    budget_s: float = 60.0
    """Seconds for the interleaved rounds."""
    threads: str = ""
    """Comma-separated thread counts of the CPU variants; all cores and 1."""
    int8: bool = True
    """Try the dynamic int8 variant on the CPU."""
    allow_partial: Annotated[bool, Parameter(negative=())] = False
    """Time a graph that is partly on the CPU, labelled as that."""
    pre: str = ""
    """module:function that makes the model's inputs: times the whole request path."""
    post: str = ""
    """module:function that reads the model's outputs."""
    price: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """DEVICE=DOLLARS_PER_HOUR of a whole machine, such as cpu=0.10; else the dated card in the package."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InputFlags:
    """What a model is fed in a duel."""

    input: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """NAME=[SHAPE][:DTYPE][@VALUE] of one input, such as input=Nx576:float32 or sr=@16000."""
    inputs: Path | None = None
    """An .npz with real inputs, one array per input."""
    dim: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """SYMBOL=SIZE of an open dimension, such as sequence_length=128."""
    seed: int = 0
    """Of the inputs, the order of the rounds and the bootstrap."""


@app.command
def measure(
    model: str,
    /,
    *,
    who: DuelFlags = DuelFlags(),
    fed: InputFlags = InputFlags(),
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Duel: run one model on every device and variant here, and say who is faster, who is cheaper, from which batch on.

    Args:
        model: An ONNX file, or module:function (see docs/measure.md for what the function may look like).
        who: Who takes part.
        fed: What the model is fed.
        out: Folder for duel.json, report.html and profiles/; out/measure/MODEL.
        json: Print the duel as one JSON document.
    """
    from rich.console import Console

    from turnout import measure as verb
    from turnout import store
    from turnout.measure.text import show

    sys.path.insert(0, str(Path.cwd()))  # module:function names the user's own file
    options = _duel_options(who, fed)
    with _Progress() as progress:
        duel = verb.run(model, options, now=datetime.now(UTC), environ=os.environ, progress=progress)
    written = verb.save(duel, out or Path("out/measure") / Path(model.replace(":", "-")).stem)
    if json:
        sys.stdout.write(store.encode(duel).decode())
        return
    show(duel, Console(width=_width()))
    for path in written:
        print(f"Wrote {path}", file=sys.stderr)


def _duel_options(who: DuelFlags, fed: InputFlags) -> Any:
    """Flags to the verb's options."""
    from turnout.measure import SIZES, Options
    from turnout.measure.inputs import parse_override
    from turnout.measure.prices import parse as parse_prices

    return Options(
        devices=tuple(who.devices.split(",")),
        sizes=_counts("--batch", who.batch) or SIZES,
        budget_s=who.budget_s,
        threads=_counts("--threads", who.threads),
        int8=who.int8,
        allow_partial=who.allow_partial,
        pre=who.pre,
        post=who.post,
        prices=parse_prices(who.price),
        inputs_file=str(fed.inputs or ""),
        overrides=dict(parse_override(text) for text in fed.input),
        dims=dict(_dim(text) for text in fed.dim),
        seed=fed.seed,
    )


@app.command
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


@app.command
def replay(
    log: Path,
    /,
    *,
    add: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    policy: str = "",
    params: str = "",
    ignore_truncated_tail: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
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
            log, add, policy, _toml("--params", params), ignore_truncated_tail=ignore_truncated_tail, json=json
        )
    result = verb.verify(log, policies.load, ignore_truncated_tail=ignore_truncated_tail)
    if json:
        _print_json(result)
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
    from rich.console import Console

    from turnout import policies, simulate
    from turnout import replay as verb
    from turnout.replay.text import show

    recording = verb.record(log, ignore_truncated_tail=ignore_truncated_tail)
    replicas, pools = _additions(add, recording.configured.models)

    def run(configured: Any, arrivals: Any, faults: Any, latency: Any) -> Any:
        draws = {key: simulate.from_model(model) for key, model in latency.items()}
        return simulate.run(configured, arrivals, draws, policies.load, faults=faults)

    answer = verb.what_if(recording, run, add=pools, replicas=replicas, policy=policy or None, params=params)
    if json:
        _print_json(answer)
    else:
        show(answer, Console(width=_width()))
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


@app.command
def demo(*, out: Path = Path("out/demo"), json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """The whole of Turnout in two minutes: a duel here, live traffic with a killed replica, real GPUs, and advice.

    Args:
        out: Folder for the artefacts and report.html.
        json: Print the result as one JSON document.
    """
    from rich.console import Console

    from turnout import demo as verb
    from turnout import store
    from turnout.demo.text import show

    with _Progress() as progress:
        result = verb.run(out, now=datetime.now(UTC), environ=os.environ, progress=progress)
    if json:
        sys.stdout.write(store.encode(result).decode())
        return
    show(result, Console(width=_width()))
    print(f"Report: {out / 'report.html'}")


def _print_json(value: Any) -> None:
    """One JSON document on stdout, in the envelope of every artefact."""
    from turnout import store

    sys.stdout.write(store.encode(value).decode())


class _Progress:
    """A line of progress on stderr, only where a person watches it."""

    def __enter__(self) -> Any:
        """Start the line; returns what is to be called with (what, share done)."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description:<40}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._bar.start()
        task = self._bar.add_task("starting", total=1.0)
        return lambda what, share: self._bar.update(task, description=what, completed=share)

    def __exit__(self, *_raised: object) -> None:
        """Clear the line."""
        self._bar.stop()


def _counts(flag: str, text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers, () for none."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"{flag} {text!r} is not a list of whole numbers such as 1,2,4") from None


def _toml(flag: str, text: str) -> dict[str, Any]:
    """A flag's value as the lines of a TOML table."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{flag} {text!r} is not TOML, such as 'items = 64': {error}") from None


def _dim(text: str) -> tuple[str, int]:
    """One SYMBOL=SIZE."""
    name, _, size = text.partition("=")
    if not name or not re.fullmatch("0*[1-9][0-9]{0,8}", size):
        raise ConfigError(f"--dim {text!r} is not SYMBOL=SIZE, such as sequence_length=128")
    return name, int(size)


def _width() -> int | None:
    """The terminal's width; wide where the output is a file, so that tables are not torn."""
    return None if sys.stdout.isatty() else 140


class _TerminatedError(BaseException):
    """SIGTERM arrived; not an Exception, so that nothing on the way catches it."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception, so that files in the making are cleaned up."""
    raise _TerminatedError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code; every error is one message on stderr."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return USAGE
    except TurnoutError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("turnout: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _TerminatedError:
        print("turnout: terminated", file=sys.stderr)
        return TERMINATED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    except Exception as error:  # what nobody foresaw is still one message, with the traceback on request
        if os.environ.get("TURNOUT_TRACEBACK"):
            raise
        print(
            f"turnout: unexpected {type(error).__name__}: {error} (a bug; TURNOUT_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        return UNEXPECTED
    return result if isinstance(result, int) else 0
