"""metrics.prom, loaded as a site does: node exporter's textfile collector, scraped by a real Prometheus.

Both programs come from PATH or, where apt can fetch them, from Debian's packages, which are unpacked and not
installed.
"""

import functools
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shakedown/prometheus"
PACKAGES = {"prometheus": "prometheus", "promtool": "prometheus", "prometheus-node-exporter": None}


@functools.cache
def program(name: str) -> str:
    """Return where a program is; skips where it cannot be had."""
    if found := shutil.which(name) or shutil.which(CACHE / "usr/bin" / name):
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip(f"{name} is not installed, and there is no apt to fetch it with")
    CACHE.mkdir(parents=True, exist_ok=True)
    package = PACKAGES[name] or name
    fetch = ["apt-get", "download", "-q", package]
    fetched = subprocess.run(fetch, cwd=CACHE, capture_output=True, text=True, check=False, timeout=300)
    for archive in CACHE.glob(f"{package}_*.deb"):
        subprocess.run(["dpkg", "-x", archive, CACHE], check=True, timeout=300)
        archive.unlink()
    if found := shutil.which(CACHE / "usr/bin" / name):
        return found
    pytest.skip(f"{package} cannot be fetched: {fetched.stderr.strip()[-200:]}")


def free_port() -> int:
    """Return a port of this host that nothing listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(log: Path, *words: object) -> Iterator[None]:
    """Run a daemon; its output goes to a file."""
    with log.open("wb") as out:
        child = subprocess.Popen([*map(str, words)], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)


class Prometheus:
    """A Prometheus that scrapes a node exporter with one folder of text files."""

    def __init__(self, port: int, exporter: int) -> None:
        self.port, self.exporter = port, exporter

    def get(self, port: int, path: str) -> str:
        """Return what is answered; empty while nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return ""

    def ask(self, query: str) -> dict[str, float]:
        """Return the instant vector of a query, by the series' labels."""
        path = f"/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        text = self.get(self.port, path)
        found = json.loads(text)["data"]["result"] if text else []
        return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found}

    def until(self, query: str, wanted: float) -> dict[str, float]:
        """Wait until a query has an answer of one value that is the wanted one, and return it."""
        deadline = time.monotonic() + 180
        while list((found := self.ask(query)).values()) != [wanted]:
            assert time.monotonic() < deadline, f"{query}: {found}"
            time.sleep(0.5)
        return found


@contextmanager
def prometheus(folder: Path, metrics: Path) -> Iterator[Prometheus]:
    """Run both programs for one metrics.prom."""
    textfiles = folder / "textfiles"
    textfiles.mkdir()
    shutil.copyfile(metrics, textfiles / "shakedown.prom")
    ports = Prometheus(free_port(), free_port())
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"- {{job_name: site, static_configs: [{{targets: ['127.0.0.1:{ports.exporter}']}}]}}\n"
    )
    exporter = (
        program("prometheus-node-exporter"),
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={textfiles}",
        f"--web.listen-address=127.0.0.1:{ports.exporter}",
    )
    server = (
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{ports.port}",
    )
    with started(folder / "exporter.log", *exporter), started(folder / "prometheus.log", *server):
        yield ports


def series_of(metrics: Path) -> int:
    """Return how many series a file has."""
    return sum(bool(line) and not line.startswith("#") for line in metrics.read_text().splitlines())


@pytest.fixture
def healthy(recorded_run, shakedown) -> Path:
    """The metrics of a healthy run of the lab."""
    run = recorded_run("lab_healthy")
    assert shakedown("collect", run)[0] == 0
    shakedown("verdict", run, "--write")
    assert shakedown("report", run)[0] == 0
    return run / "metrics.prom"


def test_a_real_prometheus_takes_every_series_of_a_run(tmp_path, healthy):
    """Catches: two series of the same labels, for which the collector drops the whole file; a value, a name
    or an escape that only some library takes."""
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=healthy.read_bytes(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with prometheus(tmp_path, healthy) as site:
        site.until('count({__name__=~"shakedown_.+"})', series_of(healthy))
        assert list(site.ask("node_textfile_scrape_error").values()) == [0.0]
        assert list(site.ask('shakedown_verdict{outcome="PASS"}').values()) == [1.0]


def test_series_twice_are_refused_by_it(tmp_path, healthy):
    """Catches: a count of series that is right whatever stands in the file."""
    text = healthy.read_text()
    line = next(line for line in text.splitlines() if line.startswith("shakedown_test_gate{"))
    twice = tmp_path / "metrics.prom"
    twice.write_text(text.replace(line, f"{line}\n{re.sub(r'[^ ]+$', '1.5', line)}", 1))
    with prometheus(tmp_path, twice) as site:
        site.until('count({__name__=~"shakedown_.+"})', series_of(twice) - 1)
    assert "was collected before" in (tmp_path / "exporter.log").read_text()
