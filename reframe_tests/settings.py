"""ReFrame's configuration, made from the site's inventory and the run; nothing here is edited per site.

`SHAKEDOWN_RUN` names the run, by an absolute path: ReFrame reads this file in the file's own folder. What the
playbooks wrote about the site is `site.json`: the file that `SHAKEDOWN_SITE` names, else the one in the run's
folder or in the folder that holds `runs/`, as on a submit host. Without it Slurm's default partition is used.
The nightly sets `SHAKEDOWN_ACCESS` and `SHAKEDOWN_MAX_JOBS`.
"""

import importlib
import json
import os
import pathlib
import sys
from typing import NoReturn

# The checks import `reframe_tests` and `shakedown`, which lie here: in a checkout or in site-packages.
# Jobs inherit the path where it is not the interpreter's own (guard.py). At the end: ReFrame 4.10 removes
# what it put on the path itself by position, and would take site-packages if anything came in front.
_ROOT = str(pathlib.Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), _ROOT]))


def _refuse(said: object) -> NoReturn:
    """End ReFrame as the commands end on bad input: one line, and not the status of a check that failed."""
    print(said, file=sys.stderr)
    sys.exit(2)


# ReFrame leaves out a check that it cannot import, runs 0 checks, says PASSED and exits 0.
try:
    importlib.import_module("shakedown.benchmarks.registry")
    _reading = importlib.import_module("shakedown.records.reading")
    _jobs = importlib.import_module("shakedown.plan.jobs")
except ImportError as _error:
    _refuse(f"{_error} -- install shakedown, or requirements/head.txt, for {sys.executable}")


def _named(variable: str) -> pathlib.Path | None:
    """The path that a variable names, if it is set."""
    if not (path := os.environ.get(variable)):
        return None
    if not pathlib.Path(path).is_absolute():
        _refuse(f'{variable}: {path!r} is relative -- export {variable}="$PWD/{path}"')
    return pathlib.Path(path)


_RUN = None if (_run := _named("SHAKEDOWN_RUN")) is None else _run.resolve()
# A Slurm of any name, for a run that no playbook brought here.
_ANY_SITE = {
    "system": "site",
    "hostnames": [".*"],
    "partition": "all",
    "scheduler": "squeue",
    "launcher": "srun",
    "access": ["--no-requeue", "--exclusive"],
    "features": ["roce"],
}


def _site() -> dict:
    if named := _named("SHAKEDOWN_SITE"):
        places = [named]
    else:
        places = [] if _RUN is None else [_RUN / "site.json", _RUN.parents[1] / "site.json"]
        places = [place for place in places if place.is_file()]
    if not places:
        return _ANY_SITE
    try:
        return json.loads(places[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _refuse(f"{places[0]}: {error} -- name the site.json that playbooks/site.yml wrote")


def _planned() -> dict:
    """What the plan says of every job: the site's `slurm:` block, and how many at a time."""
    # Set and empty it means that there is no run yet, as where a role only lists the checks.
    if "SHAKEDOWN_RUN" not in os.environ:
        _refuse('SHAKEDOWN_RUN is not set -- export SHAKEDOWN_RUN="$PWD/reports/runs/RUN-ID"')
    if _RUN is None:
        return {}
    try:
        return _reading.read_record(_RUN / "jobs.json", _jobs.Jobs).model_dump()
    except _reading.BadInput as error:
        _refuse(f"{error}; `shakedown plan INVENTORY --output FOLDER` makes one")


_SITE = _site()
_PLANNED = _planned()
# What ReFrame writes belongs to the run; without one, where it was started.
_OUT = pathlib.Path() if _RUN is None else _RUN / "reframe"
_PERF = "check_result|job_completion_time|check_planned|check_partition|check_perf_var|check_perf_value"
_PERF += "|check_perf_unit|check_perf_ref|check_perf_lower_thres|check_perf_upper_thres"

site_configuration = {
    "systems": [
        {
            "name": _SITE["system"],
            "descr": "made from the Ansible inventory",
            "hostnames": _SITE["hostnames"],
            "modules_system": _SITE.get("modules_system", "nomod"),
            "prefix": str(_OUT),
            "partitions": [
                {
                    "name": _SITE["partition"],
                    "scheduler": _SITE["scheduler"],
                    "launcher": _SITE["launcher"],
                    # A nightly run adds lower priority and a deadline; the last of two options holds.
                    "access": [
                        *_SITE["access"],
                        *_PLANNED.get("submit", []),
                        *json.loads(os.environ.get("SHAKEDOWN_ACCESS", "[]")),
                    ],
                    "environs": ["site"],
                    "features": _SITE["features"],
                    # A night's word, else the plan's, else the site's.
                    "max_jobs": int(
                        os.environ.get("SHAKEDOWN_MAX_JOBS")
                        or _PLANNED.get("max_jobs")
                        or _SITE.get("max_jobs", 1)
                    ),
                    # A job that waits for a dead node is cancelled by slurm.cancel_stuck: ReFrame's own
                    # way raises while the test waits, and then never ends.
                    "sched_options": {"job_submit_timeout": 60, "slurm_job_cancel_reasons": []},
                }
            ],
        }
    ],
    "environments": [{"name": "site"}],
    "general": [{"check_search_recursive": True, "purge_environment": False, "pipeline_timeout": 5}],
    "modes": [
        # For CI: every value printed, no second attempt (a pass on retry is no pass), JUnit.
        {
            "name": "ci",
            "options": [
                "--nocolor",
                "--performance-report",
                "--max-retries=0",
                f"--report-junit={_OUT / 'junit.xml'}",
            ],
        }
    ],
    "logging": [
        {
            # The default, debug to a file, costs five times the CPU of the tests themselves.
            "level": "info",
            "handlers": [
                {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
                {
                    "type": "file",
                    "level": "info",
                    "name": str("reframe.log" if _RUN is None else _RUN / "reframe.log"),
                    "append": True,
                    "format": "%(asctime)s %(levelname)s %(message)s",
                    "timestamp": "%FT%TZ",
                },
            ],
            # One line for each value. Names of cells hold commas, hence the bars.
            "perflog_multiline": True,
            "handlers_perflog": [
                {
                    "type": "filelog",
                    "level": "info",
                    "prefix": "%(check_system)s",
                    "basedir": str(_OUT / "perflogs"),
                    "append": True,
                    "format": "|".join(f"%({name})s" for name in _PERF.split("|")),
                }
            ],
        }
    ],
}
