"""The report in a real browser: opening, sorting, filtering, dark, paper, telephone, without script."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from shakedown.report import html
from shakedown.report import html as raw

WIDTHS = (1280, 768, 390)
CONTRAST = Path(__file__).with_name("contrast.js")


def load(browser: Chrome, page: Path) -> None:
    """Open a page at desk size with clean logs."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())


def requests(browser: Chrome) -> list[str]:
    """Addresses that the browser asked for since the page was loaded."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def column(browser: Chrome, table: str, index: int) -> list[str]:
    """The texts of one column, from top to bottom."""
    return browser.execute_script(
        "return Array.from(document.querySelectorAll(arguments[0] + ' tbody tr'),"
        " row => row.cells[arguments[1]].innerText)",
        table,
        index,
    )


def test_no_request_leaves_the_page_and_the_console_is_silent(browser: Chrome, failed_run: Path) -> None:
    """Catches a font or picture from elsewhere, a script error, a violated policy."""
    load(browser, failed_run)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    asked = [u for u in requests(browser) if not u.startswith("data:image/png")]
    assert asked == [failed_run.as_uri()]
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_it_must(browser: Chrome, failed_run: Path, tmp_path: Path) -> None:
    """Catches a policy that is there but allows: a script put into the page must not run."""
    page = tmp_path / "tampered.html"
    page.write_text(
        failed_run.read_text().replace(
            "</main>", "<script>document.title='ran'</script><img src='https://example.invalid/x'></main>"
        )
    )
    load(browser, page)
    assert browser.title != "ran"
    # Chromium announces a request before the policy stops it, so the console is what tells.
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert any("Executing inline script violates" in m for m in refused)
    assert any("Loading the image 'https://example.invalid/x' violates" in m for m in refused)


def test_the_verdict_and_the_worst_finding_need_no_scrolling(browser: Chrome, failed_run: Path) -> None:
    """Catches a first screen that does not say what failed and why."""
    load(browser, failed_run)
    height = browser.execute_script("return innerHeight")
    for selector in (".verdict h1", ".verdict .reason", ".finding .reason"):
        element = browser.find_element(By.CSS_SELECTOR, selector)
        assert element.is_displayed()
        assert element.rect["y"] + element.rect["height"] <= height, selector
    assert browser.find_element(By.TAG_NAME, "h1").text == "FAIL"
    assert (
        float(
            browser.execute_script(
                "return parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)"
            )
        )
        > 40
    )


def test_raw_output_is_one_click_away(browser: Chrome, failed_run: Path) -> None:
    """Catches evidence that does not open."""
    load(browser, failed_run)
    details = browser.find_element(By.CSS_SELECTOR, "details.raw")
    assert not details.find_element(By.TAG_NAME, "pre").is_displayed()
    details.find_element(By.TAG_NAME, "summary").click()
    assert "BW average" in details.find_element(By.TAG_NAME, "pre").text
    link = details.find_element(By.TAG_NAME, "a").get_attribute("href")
    assert link is not None
    assert Path(link.removeprefix("file://")).is_file()


def test_columns_sort_as_numbers_both_ways(browser: Chrome, failed_run: Path) -> None:
    """Catches 1,841 sorted between 1 and 2, and missing values sorted to the top."""
    load(browser, failed_run)
    header = browser.find_element(By.CSS_SELECTOR, "#cell-table thead th:nth-child(4)")
    rows = "document.querySelectorAll('#cell-table tbody tr')"
    values = f"return Array.from({rows}, r => r.cells[3].dataset.v ?? null)"
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    up = browser.execute_script(values)
    numbers = [float(v) for v in up if v is not None]
    assert numbers == sorted(numbers)
    assert len(numbers) > 100
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "descending"
    down = [float(v) for v in browser.execute_script(values) if v is not None]
    assert down == sorted(numbers, reverse=True)
    # Gates from 0.00007 to 40,000: text in order, or with commas, is not in order.
    browser.find_element(By.CSS_SELECTOR, "#cell-table thead th:nth-child(5) button").click()
    gates = [float(v.replace(",", "")) for v in column(browser, "#cell-table", 4)]
    assert gates == sorted(gates)
    browser.find_element(By.CSS_SELECTOR, "#cell-table thead th:nth-child(7) button").click()
    shares = column(browser, "#cell-table", 6)
    assert "–" in shares
    assert set(shares[shares.index("–") :]) == {"–"}
    known = [float(s.replace(" %", "").replace(",", "")) for s in shares[: shares.index("–")]]
    assert known == sorted(known)


def test_sorting_works_from_the_keyboard(browser: Chrome, failed_run: Path) -> None:
    """Catches a table that only a mouse can sort."""
    load(browser, failed_run)
    button = browser.find_element(By.CSS_SELECTOR, "#cell-table thead th:nth-child(2) button")
    button.send_keys(Keys.ENTER)
    places = column(browser, "#cell-table", 1)
    assert places[0].startswith("n1")
    assert places[-1].startswith("n6")
    header = browser.find_element(By.CSS_SELECTOR, "#cell-table thead th:nth-child(2)")
    assert header.get_attribute("aria-sort") == "ascending"


def test_the_filter_keeps_rows_that_hold_all_words(browser: Chrome, failed_run: Path) -> None:
    """Catches a filter that hides a failure or shows others."""
    load(browser, failed_run)
    box = browser.find_element(By.ID, "cell-filter")
    box.send_keys("n3 rail1 FAIL")
    shown = [
        r.text for r in browser.find_elements(By.CSS_SELECTOR, "#cell-table tbody tr") if r.is_displayed()
    ]
    assert len(shown) == 10
    assert all("n3" in r and "rail1" in r for r in shown)
    assert browser.find_element(By.ID, "cell-count").text.startswith("10 of ")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.DELETE)
    assert not browser.find_elements(By.CSS_SELECTOR, "#cell-table tbody tr[hidden]")


def test_links_of_the_page_arrive(browser: Chrome, failed_run: Path) -> None:
    """Catches a reference that leads nowhere."""
    load(browser, failed_run)
    browser.find_element(By.CSS_SELECTOR, "#tests td.source a").click()
    target = browser.execute_script("return document.querySelector(':target')?.tagName")
    assert target == "TR"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_never_scrolls_sideways(browser: Chrome, failed_run: Path, width: int) -> None:
    """Catches a table or figure wider than a telephone; those scroll within themselves."""
    load(browser, failed_run)
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    small = browser.execute_script(
        "return Array.from(document.querySelectorAll('p, td, th, dd, li, summary'))"
        ".filter(e => e.checkVisibility() && parseFloat(getComputedStyle(e).fontSize) < 11).length"
    )
    assert small == 0


@pytest.mark.parametrize("width", [*WIDTHS, 320])
def test_the_longest_verdict_fits_its_box(browser: Chrome, tmp_path: Path, width: int) -> None:
    """Catches INCONCLUSIVE cut off at the edge of a telephone."""
    from synthetic_run import Faults, judged, make_plan

    page = tmp_path / "page.html"
    page.write_text(html.render_html(html.build(judged(make_plan(2, 1), Faults(killed_job=True))), {}))
    load(browser, page)
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    word, box = (browser.find_element(By.CSS_SELECTOR, s).rect for s in ("h1", ".verdict"))
    assert browser.find_element(By.TAG_NAME, "h1").text == "INCONCLUSIVE"
    assert word["x"] + word["width"] <= box["x"] + box["width"] - 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(browser: Chrome, failed_run: Path, scheme: str) -> None:
    """Catches text below WCAG 2 AA (4.5 to 1), and a dark mode that is not dark."""
    load(browser, failed_run)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert browser.execute_script(CONTRAST.read_text()) == {}
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(v) for v in ground[4:-1].split(",")) < 200) is (scheme == "dark")
    line = browser.execute_script("return getComputedStyle(document.querySelector('.chart text')).fill")
    assert (sum(int(v) for v in line[4:-1].split(",")) > 400) is (scheme == "dark")


def test_figures_are_there_without_javascript(start: Callable[..., Chrome], failed_run: Path) -> None:
    """Catches a page that is empty where scripts are forbidden."""
    silent = start(javascript=False)
    silent.get(failed_run.as_uri())
    assert silent.find_element(By.TAG_NAME, "h1").text == "FAIL"
    for selector in (".chart", ".heat image", ".gauge"):
        assert silent.find_element(By.CSS_SELECTOR, selector).is_displayed()
    assert not silent.find_element(By.ID, "cell-filter").is_displayed()
    assert silent.find_elements(By.CSS_SELECTOR, "thead button") == []
    silent.find_element(By.CSS_SELECTOR, "details.raw summary").click()
    assert silent.find_element(By.CSS_SELECTOR, "details.raw pre").is_displayed()


def test_it_prints_on_a4(browser: Chrome, failed_run: Path) -> None:
    """Catches a table cut at the edge of the paper, a dark page, many sheets, a signature on the last."""
    load(browser, failed_run)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    # A4 less its margins, in CSS pixels.
    metrics = {"width": 703, "height": 1017, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    too_wide = browser.execute_script(
        "return Array.from(document.querySelectorAll('table, svg, pre')).filter(e => e.checkVisibility()"
        " && e.getBoundingClientRect().right > 704).map(e => e.className || e.tagName)"
    )
    assert too_wide == []
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf[:5] == b"%PDF-"
    assert 2 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") <= 6
    last = "Array.from(document.querySelectorAll('.lines p')).filter(e => e.checkVisibility()).pop()"
    assert browser.execute_script(f"return {last}.getBoundingClientRect().bottom") < 1017, "sign on page one"


def test_hostile_names_do_nothing(browser: Chrome, tmp_path: Path) -> None:
    """Catches script, markup or a request out of any name, unit, path or raw output."""
    from test_report_html import HOSTILE, hostile_run

    path = f"raw/{HOSTILE}"
    excerpts = {path: raw.Excerpt(path, HOSTILE, "", readable=True)}
    page = tmp_path / "hostile.html"
    page.write_text(html.render_html(html.build(hostile_run()), excerpts))
    load(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert [u for u in requests(browser) if not u.startswith("data:image/png")] == [page.as_uri()]
    assert browser.get_log("browser") == []
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    # The unit is hostile too, and cut to the length of a unit.
    assert HOSTILE[:30] in browser.find_element(By.CSS_SELECTOR, ".verdict").text
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
