"""A headless Chromium, and report pages of made-up runs."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--disable-sync")
FLAGS += ("--window-size=1280,900",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder `browser`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., webdriver.Chrome]]:
    """Start browsers, each with a profile of its own, and end them."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    started: list[webdriver.Chrome] = []

    def begin(*, javascript: bool = True) -> webdriver.Chrome:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if not javascript:
            blocked = {"profile.managed_default_content_settings.javascript": 2}
            options.add_experimental_option("prefs", blocked)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        started.append(browser)
        return browser

    yield begin
    for browser in started:
        browser.quit()


@pytest.fixture(scope="session")
def browser(start: Callable[..., webdriver.Chrome]) -> webdriver.Chrome:
    """One browser for all tests that need nothing special of it."""
    return start()


@pytest.fixture(scope="session")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with a NIC at half rate, lost packets and a busy node."""
    from synthetic_run import Faults, make_plan, write

    from shakedown.report.write import report

    faults = Faults(slow_rail=("n3", "rail1"), counter=("n5", "out_of_sequence", 1841), busy_node="n2")
    folder = write(tmp_path_factory.mktemp("run") / "a", make_plan(6, 2, caveats=("Emulated NICs.",)), faults)
    report(folder)
    return folder / "report.html"
