"""The reports work in a real browser: headless Chromium draws every figure, from the file alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import duels
from turnout.measure import html

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def opened(page: str, folder: Path, *flags: str) -> str:
    """The page's DOM after its scripts have run, from a browser of its own."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", profile, *QUIET)
    done = subprocess.run(
        [CHROMIUM, *fixed, *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=50, check=True
    )
    return done.stdout


@pytest.mark.parametrize("scheme", ["0", "1"])
def test_a_report_draws_all_its_figures(tmp_path, scheme):
    """In dark and in light, every place for a figure has a drawing in it, and nothing came from elsewhere."""
    cpu = duels.entry("cpu fp32 threads=1", lambda n: 0.001 * n, threads=1)
    gpu = duels.entry("cuda fp32", lambda n: 0.004 + 0.0001 * n)
    page = html.render(duels.duel(cpu, gpu))
    dom = opened(page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}")
    assert dom.count('class="figure') == page.count('class="figure')
    assert dom.count('class="main-svg"') >= page.count('class="figure')
