"""ReFrame's configuration, made from the site's inventory.

The playbooks write that as JSON (`SHAKEDOWN_SITE` names the file); nothing here is edited per site.
"""

import json
import os
import pathlib
import sys

if "SHAKEDOWN_SITE" not in os.environ:
    sys.exit("SHAKEDOWN_SITE is not set -- name the site.json that playbooks/site.yml wrote")
_site = json.loads(pathlib.Path(os.environ["SHAKEDOWN_SITE"]).read_text(encoding="utf-8"))

site_configuration = {
    "systems": [
        {
            "name": _site["system"],
            "descr": "made from the Ansible inventory",
            "hostnames": _site["hostnames"],
            "modules_system": _site.get("modules_system", "nomod"),
            "partitions": [
                {
                    "name": _site["partition"],
                    "scheduler": _site["scheduler"],
                    "launcher": _site["launcher"],
                    # A nightly run adds lower priority and a deadline; the last of two options holds.
                    "access": _site["access"] + json.loads(os.environ.get("SHAKEDOWN_ACCESS", "[]")),
                    "environs": ["site"],
                    "features": _site["features"],
                    "max_jobs": int(os.environ.get("SHAKEDOWN_MAX_JOBS", _site["max_jobs"])),
                    # A job that waits for a dead node is cancelled by slurm.cancel_stuck: ReFrame's own
                    # way raises while the test waits, and then never ends.
                    "sched_options": {"job_submit_timeout": 60, "slurm_job_cancel_reasons": []},
                }
            ],
        }
    ],
    "environments": [{"name": "site"}],
    "general": [{"check_search_recursive": True, "purge_environment": False, "pipeline_timeout": 5}],
    "logging": [
        {
            # The default, debug to a file, costs five times the CPU of the tests themselves.
            "level": "info",
            "handlers": [
                {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
                {
                    "type": "file",
                    "level": "info",
                    "name": "reframe.log",
                    "append": True,
                    "format": "%(asctime)s %(levelname)s %(message)s",
                    "timestamp": "%FT%TZ",
                },
            ],
        }
    ],
}
