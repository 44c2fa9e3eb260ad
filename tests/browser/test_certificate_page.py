"""Certificates in a real browser: one sheet to sign, and nothing of what others wrote is run."""

import base64
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from test_report_page import load, requests

from shakedown.report import certificate
from shakedown.report.html import print_pdf
from tests.unit.evidence.test_certificate import BANDWIDTH, HOSTILE, Site, asks, block

TEXT = "Between every pair of nodes writes reach 95 % of the line's rate on each rail and in both directions"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of twenty criteria by two runs with caveats, of which one is not answered."""
    site = Site(tmp_path, monkeypatch)
    site.run(block(), block(test="ib_read_bw"), caveats=("Emulated NICs.", HOSTILE))
    site.run(block(), block(test="ib_read_bw", required=False), caveats=("A second run.",))
    many = [asks(BANDWIDTH, id=f"B.{number}", text=TEXT) for number in range(1, 20)]
    made = site.certified(*many, asks("node/*", id="B.20", text=HOSTILE))
    (tmp_path / certificate.PAGE).write_text(certificate.render(made))
    return tmp_path / certificate.PAGE


def test_twenty_criteria_are_one_sheet(browser: Chrome, page: Path) -> None:
    """Catches: signature lines on a second sheet, a table cut at the edge, an answer that is not bold."""
    load(browser, page)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    pdf = base64.b64decode(printed)
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") == 1
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    metrics = {"width": 703, "height": 1017, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    right = "e.getBoundingClientRect().right > 704"
    wide = f"Array.from(document.querySelectorAll('table, code')).filter(e => {right})"
    assert browser.execute_script(f"return {wide}.length") == 0
    weight = "return getComputedStyle(arguments[0]).fontWeight"
    (silent,) = (b for b in browser.find_elements(By.CSS_SELECTOR, "td b") if "no cell of any" in b.text)
    assert int(browser.execute_script(weight, silent)) >= 600


def test_nothing_is_run_or_asked_for(browser: Chrome, page: Path) -> None:
    """Catches: script, markup or a request out of a criterion or a caveat."""
    load(browser, page)
    assert requests(browser) == [page.as_uri()] and browser.get_log("browser") == []
    assert browser.find_elements(By.TAG_NAME, "script") == []
    assert "<script>alert(1)</script>" in browser.find_element(By.TAG_NAME, "main").text


def test_it_is_printed_without_anybody(browser: Chrome, page: Path) -> None:
    """Catches: --pdf that writes nothing, or half a file, and says so to nobody."""
    print_pdf(page, page.parent / "certificate.pdf")
    pdf = (page.parent / "certificate.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-") and pdf.rstrip().endswith(b"%%EOF")
