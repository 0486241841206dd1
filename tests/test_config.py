"""Configs: precedence, every fault at once with its path, profiles that must not be used."""

from pathlib import Path

import pytest

from turnout import config, policies, store
from turnout.config.schema import Config
from turnout.core.latency import line
from turnout.core.profile import Cold, Parity, Profile, Provenance, Samples
from turnout.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent

GOOD = """
[gateway]
port = 9000
log = "here"

[limits]
max_waiting = 7

[[models]]
name = "m"
path = "m.onnx"
slo = { deadline_ms = 50 }
late = "serve"
weights = 13_000_000_000

[[pools]]
name = "cpu"
models = ["m"]
profile = { m = "cpu.json" }
replicas = 2
link = { rtt_ms = 2, usd_per_gb = 0.09 }
price = { usd_per_h = 0.36, billing = "elastic" }
"""

PROFILE = Profile(
    model="m",
    model_digest="sha256:1",
    device="cpu",
    device_key="k",
    variant="fp32",
    provenance=Provenance(kind="measured", source="", date="", hardware=""),
    samples=(Samples(items=1, service_s=(0.1, 0.1)), Samples(items=4, service_s=(0.4,))),
    cold=Cold(load_s=1.0, first_run_s=0.5),
)


def written(folder, text=GOOD):
    """A config file."""
    path = folder / "turnout.toml"
    path.write_text(text)
    return path


def resolved(folder, profile=PROFILE, text=GOOD, digest="sha256:1"):
    """A config and a profile, resolved."""
    store.save(profile, folder / "cpu.json")
    loaded = config.load(written(folder, text), {})
    return config.resolve(loaded, lambda path: store.load(path, Profile), lambda source: digest)


def faults(folder, text, environ=None, overrides=None):
    """The lines of the error, without its title."""
    with pytest.raises(ConfigError) as caught:
        config.load(written(folder, text), environ or {}, overrides)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_later_sources_win(tmp_path):
    """Flags over variables over the file over defaults; paths are relative to the file."""
    path = written(tmp_path)
    environ = {"TURNOUT_GATEWAY__PORT": "9001", "TURNOUT_POLICY__NAME": "earliest", "PATH": "x"}
    assert config.load(path, {}).gateway.port == 9000
    loaded = config.load(path, environ)
    assert (loaded.gateway.port, loaded.policy.name, loaded.gateway.host) == (9001, "earliest", "127.0.0.1")
    assert config.load(path, environ, {"gateway.port": 9002}).gateway.port == 9002
    assert loaded.gateway.log == tmp_path / "here"
    assert loaded.models[0].path == str(tmp_path / "m.onnx")
    assert loaded.pools[0].profile == {"m": tmp_path / "cpu.json"}


def test_the_default_policy_is_that_of_the_registry(tmp_path):
    """A config that names none gets the one that the simulator and the regret take by default."""
    assert config.load(written(tmp_path), {}).policy.name == policies.DEFAULT


def test_a_function_is_not_a_path(tmp_path):
    """`module:function` stays as it is."""
    loaded = config.load(written(tmp_path, GOOD.replace("m.onnx", "mine:call").replace("here", "")), {})
    assert loaded.models[0].path == "mine:call"
    assert loaded.gateway.log is None


def test_every_fault_is_said_at_once_with_its_path(tmp_path):
    """And what was probably meant."""
    text = GOOD.replace("port = 9000", "prot = 9000\nbody_timeout_s = 0").replace("replicas = 2", "replicsa = 0")
    text = text.replace("deadline_ms = 50", "attainment = 2") + "\n[polcy]\n"
    said = faults(tmp_path, text, {"TURNOUT_GATEWAY__PROT": "1"}, {"gateway.hots": "x"})
    assert said == [
        "TURNOUT_GATEWAY__PROT (environment): there is no such setting; did you mean TURNOUT_GATEWAY__PORT?",
        "gateway.body_timeout_s: input should be greater than 0",
        "gateway.prot: there is no such key; did you mean port?",
        "gateway.hots: there is no such key; did you mean host?",
        "models[0].slo.deadline_ms: is missing",
        "models[0].slo.attainment: input should be less than or equal to 1",
        "pools[0].replicsa: there is no such key; did you mean replicas?",
        "polcy: there is no such key; did you mean policy?",
    ]


def test_a_file_of_pools_has_nothing_else(tmp_path):
    """What is out of place there is not taken for a misspelling of itself."""
    with pytest.raises(ConfigError) as caught:
        config.load_pools(written(tmp_path, "[gateway]\n"))
    said = [line.strip() for line in str(caught.value).splitlines()[1:]]
    assert said == ["pools: is missing", "gateway: there is no such key; there are: pools"]


def test_names_must_fit_together(tmp_path):
    """Pools refer to models that there are, and every model has a pool."""
    text = GOOD.replace('models = ["m"]', 'models = ["mm"]') + '[[pools]]\nname = "cpu"\nmodels = ["x"]\n'
    said = faults(tmp_path, text + 'backend = "torch"\nlatency = { a_s = 1, b_s_per_item = 1 }\n')
    assert said == [
        "pools: cpu is there twice",
        "pools[0].models: no model is called 'mm'; did you mean m?",
        "pools[1].models: no model is called 'x'; there are: m",
        "pools[1].latency: only a simulated pool may do without a measured profile",
        "models: no pool serves m",
    ]


def test_a_real_pool_needs_a_model_file(tmp_path):
    """Only a simulated one does without."""
    assert faults(tmp_path, GOOD.replace('path = "m.onnx"\n', "")) == [
        "pools[0].models: m has no path, and backend onnx needs one"
    ]


@pytest.mark.parametrize("text", ["x = ", "\udcff"])
def test_what_is_no_toml(tmp_path, text):
    """The parser's own message has the line."""
    path = tmp_path / "turnout.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match="is not TOML"):
        config.load(path, {})


def test_a_config_that_is_not_there(tmp_path):
    """Named, with the system's reason."""
    with pytest.raises(ConfigError, match=r"no\.toml: No such file"):
        config.load(tmp_path / "no.toml", {})


@pytest.mark.parametrize("text", ["gateway = 1", "models = 1", '[[pools]]\nmodels = "m"', "pools = [1]"])
def test_values_of_the_wrong_kind_are_faults_and_nothing_worse(tmp_path, text):
    """Whatever stands where a table should be."""
    assert faults(tmp_path, text, {"TURNOUT_GATEWAY__PORT": "1"})


def test_the_cores_values(tmp_path):
    """Seconds, dollars per second, the profile's batch, cold start and latency."""
    made = resolved(tmp_path)
    (pool,), (workload,) = made.fleet.pools, made.workloads
    assert pool.price.usd_per_s == pytest.approx(1e-4)
    assert pool.price.billing == "elastic"
    assert (pool.max_items, pool.start_p50_s, pool.device_key, pool.slots) == (4, 1.5, "k", 1)
    assert (pool.link.rtt_s, pool.link.usd_per_byte) == (0.002, pytest.approx(9e-11))
    assert (workload.slo.deadline_s, workload.late, workload.digest) == (0.05, "serve", "sha256:1")
    assert workload.weights == 13_000_000_000
    assert workload.latency["cpu"].mean_s(2) == pytest.approx(0.2)
    assert made.limits.max_waiting == 7


def test_a_line_in_place_of_a_profile(tmp_path):
    """For simulated pools; a GPU has two slots."""
    text = GOOD.replace('profile = { m = "cpu.json" }', "latency = { a_s = 0.1, b_s_per_item = 0.01 }")
    text = text.replace("replicas = 2", 'backend = "simulated"\ndevice = "cuda"')
    made = resolved(tmp_path, text=text)
    assert made.workloads[0].latency["cpu"] == line(0.1, 0.01)
    assert (made.fleet.pools[0].max_items, made.fleet.pools[0].slots) == (32, 2)


UNFIT = Parity(ok=False, worst=2.0, max_abs=1.0, atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("measured on other weights", {"model_digest": "sha256:2"}),
        ("is of device cuda, and the pool is on cpu", {"device": "cuda"}),
        ("failed its comparison", {"parity": UNFIT}),
        ("has a batch size without samples", {"samples": (Samples(items=1, service_s=()),)}),
    ],
)
def test_profiles_that_must_not_be_used(tmp_path, said, changes):
    """Each says why, with the place in the config."""
    fields = {name: getattr(PROFILE, name) for name in PROFILE.__struct_fields__}
    with pytest.raises(ConfigError, match=rf"pools\[0\].profile.m: .*{said}"):
        resolved(tmp_path, Profile(**fields | changes))


def test_a_profile_too_small_or_missing(tmp_path):
    """A batch larger than measured is not predicted; without a profile the command that makes one is named."""
    with pytest.raises(ConfigError, match="covers batches up to 4, and max_items is 8"):
        resolved(tmp_path, text=GOOD.replace("replicas = 2", "max_items = 8"))
    with pytest.raises(ConfigError, match=r"turnout measure .*m\.onnx --devices cpu"):
        resolved(tmp_path, text=GOOD.replace('profile = { m = "cpu.json" }\n', ""))
    with pytest.raises(ConfigError, match=r"other\.json does not exist"):
        resolved(tmp_path, text=GOOD.replace("cpu.json", "other.json"))


def sections(kind=Config, path=""):
    """Every section with the path of its table and its fields."""
    yield path, kind
    for name, field in kind.model_fields.items():
        for inner in config._fields(field.annotation) and [
            field.annotation,
            *getattr(field.annotation, "__args__", ()),
        ]:
            if isinstance(inner, type) and issubclass(inner, config.BaseModel):
                yield from sections(inner, f"{path}.{name}".lstrip("."))


def test_every_field_is_documented():
    """In the code, and with its default in docs/config.md."""
    page = (ROOT / "docs/config.md").read_text()
    for path, kind in sections():
        for name, field in kind.model_fields.items():
            assert field.description, f"{path}.{name} has no docstring"
            assert f"`{name}`" in page, f"docs/config.md does not have {path}.{name}"
            assert field.description.split(";")[0].rstrip(".") in page, f"docs/config.md differs on {path}.{name}"


@pytest.mark.parametrize("path", sorted((ROOT / "examples/serve").glob("*.toml")), ids=lambda path: path.name)
def test_examples_are_valid(path):
    """They load, and resolve as far as they need no measurement."""
    loaded = config.load(path, {})
    if all(pool.latency for pool in loaded.pools):
        config.resolve(loaded, lambda path: PROFILE, lambda source: "")
