"""What the pages say is run, loaded and compared: a claim that has gone stale fails here."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from scripts import cli_help
from turnout import config
from turnout.config.schema import Config, Section
from turnout.core import events
from turnout.core.policy import View
from turnout.policies import POLICIES
from turnout.pools import BACKENDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted({*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")})
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"\bturnout (measure|serve|replay|demo|regret|fit|plan|simulate|feed|train|report|dashboard)\b")


def blocks(language):
    """Every fenced block of a language, in the pages and in docstrings, as (place, text)."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        found += [
            (f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}", match[2])
            for match in FENCE.finditer(text)
            if match[1] == language
        ]
    for path in sorted(ROOT.glob("src/turnout/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [
                    (f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}", match[2])
                    for match in FENCE.finditer(ast.get_docstring(node) or "")
                    if match[1] == language
                ]
    return [pytest.param(text, id=place) for place, text in found]


def words():
    """All pages as one text."""
    return "\n".join(path.read_text(encoding="utf-8") for path in PAGES)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_blocks_run(text):
    """Every block of Python runs on its own, and its assertions hold."""
    exec(compile(text, "block", "exec"), {"__name__": "block"})


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_blocks_are_configs(text, tmp_path):
    """Every block of TOML is a whole config, or has only tables and keys that one may have."""
    path = tmp_path / "block.toml"
    path.write_text(text)
    values = tomllib.loads(text)
    if {"models", "pools"} <= values.keys():
        config.load(path, {})
        return
    for table, value in values.items():
        (kind,) = (kind for name, kind in sections() if name == table)
        for row in value if isinstance(value, list) else [value]:
            kind.model_validate(row)


def sections():
    """Each top-level table of a config and its schema."""
    for name, field in Config.model_fields.items():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield name, kind


def test_links_lead_somewhere():
    """Every relative link of a page names a file that is there."""
    dead = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in PAGES
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not dead


def test_the_help_is_written_down():
    """docs/cli_help.txt is what `--help` says, so that a flag is changed on purpose."""
    assert cli_help.PAGE.read_text(encoding="utf-8") == cli_help.rendered(), "run: python scripts/cli_help.py"


def test_every_verb_has_its_page():
    """A verb and its page have one name, and no page advertises a verb that is not there."""
    verbs = set(cli_help.verbs())
    assert not [verb for verb in verbs if not (ROOT / f"docs/{verb}.md").is_file()]
    assert {*COMMAND.findall(words())} <= verbs


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_documented(name):
    """docs/policies.md has each policy in its table, with every parameter."""
    from importlib import import_module

    (row,) = re.findall(rf"^\| `{name}` \|.*$", (ROOT / "docs/policies.md").read_text(encoding="utf-8"), re.MULTILINE)
    params = import_module(POLICIES[name]).Params.__struct_fields__
    assert not [param for param in params if f"`{param}`" not in row]


def test_every_backend_is_documented():
    """The config's page and the glossary name every backend."""
    for page in ("config.md", "glossary.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert not [name for name in BACKENDS if name not in text], page


def test_the_vocabulary_is_documented():
    """docs/router.md has every event and action, and docs/policies.md everything that a policy sees."""
    router, policies = ((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in ("router", "policies"))
    records = [kind.__name__ for kind in (*events.Event.__args__, *events.Action.__args__)]
    assert not [name for name in records if f"`{name}`" not in router]
    assert not [name for name in View.__struct_fields__ if f"`{name}`" not in policies]
