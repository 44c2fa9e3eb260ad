"""The page of a comparison of sweeps in a real browser: no request, no script, any width, dark and paper."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.browser.test_report_page import CONTRAST, WIDTHS, load, requests
from tests.unit.daytwo.sweep_runs import write_run

SIZES = (64, 1 << 15, 1 << 24)  # by one factor, as nccl-tests steps


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that the command writes for three operations on two networks."""
    folder = tmp_path_factory.mktemp("ab")
    sides = {}
    for name, factor in (("a-network-with-a-name-of-40-characters", 4.0), ("roce", 1.0)):
        sizes = {size: tuple(factor * (20 + size / 9000) * r for r in (1, 1.01, 1.02)) for size in SIZES}
        operations = dict.fromkeys(("all_reduce", "reduce_scatter", "sendrecv"), sizes)
        sides[name] = write_run(
            folder / name, operations, variables={"NCCL_IB_DISABLE": str(int(factor > 1))}
        )
    arguments = [f"{name}={path}" for name, path in sides.items()]
    argv = [sys.executable, "-m", "shakedown", "sweeps", *arguments, "--html", str(folder / "ab.html")]
    subprocess.run(argv, check=True, capture_output=True, timeout=200)
    for path in sides.values():
        shutil.rmtree(path)  # the page needs neither
    return folder / "ab.html"


def test_no_request_leaves_the_page_and_the_console_is_silent(browser: Chrome, page: Path) -> None:
    """Catches a font or picture from elsewhere, a violated policy."""
    load(browser, page)
    assert requests(browser) == [page.as_uri()]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.scripts.length") == 0


@pytest.mark.parametrize("width", [*WIDTHS, 320])
def test_the_page_never_scrolls_sideways(browser: Chrome, page: Path, width: int) -> None:
    """Catches a table of eleven columns or a figure that is wider than a telephone."""
    load(browser, page)
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_and_the_sides_look_different(browser: Chrome, page: Path, scheme: str) -> None:
    """Catches grey on black, and two curves in one colour or with one mark."""
    load(browser, page)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    assert browser.execute_script(CONTRAST.read_text()) == {}
    colours = browser.execute_script(
        "return Array.from(document.querySelectorAll('.chart path'), p => getComputedStyle(p).stroke)"
    )
    paper, one, two = browser.execute_script(
        "const s = getComputedStyle(document.documentElement);"
        "const probe = document.body.appendChild(document.createElement('i'));"
        "return ['--paper', '--series-1', '--series-2'].map("
        "  v => { probe.style.color = s.getPropertyValue(v); return getComputedStyle(probe).color; })"
    )
    assert {one, two} <= set(colours)
    assert len({paper, one, two}) == 3


def test_on_paper_every_size_and_curve_is_there(browser: Chrome, page: Path) -> None:
    """Catches what only a screen shows, and tables that a sheet of A4 cuts off."""
    load(browser, page)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    metrics = {"width": 703, "height": 1017, "deviceScaleFactor": 1, "mobile": False}  # A4 less its margins
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    shown = (
        "return Array.from(document.querySelectorAll(arguments[0])).filter(e => e.checkVisibility()).length"
    )
    assert browser.execute_script(shown, ".chart") == 6
    assert browser.execute_script(shown, "#sizes tbody tr") == 3 * len(SIZES)
    too_wide = browser.execute_script(
        "return Array.from(document.querySelectorAll('table, svg'))"
        ".filter(e => e.getBoundingClientRect().right > 704).map(e => e.className || e.tagName)"
    )
    assert too_wide == []
