"""Ansible's own output, and two things more: signs of life in long tasks, and a verdict in its own words."""

from __future__ import annotations

import threading
import time
from typing import Any

from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
  name: readable
  type: stdout
  short_description: Ansible's default output, which says that a long task still runs
  description:
    - A task that prints nothing for 20 seconds is named again with its seconds.
    - A verdict other than PASS is printed as such, and not as an assertion that failed.
  extends_documentation_fragment:
    - default_callback
    - result_format_callback
  requirements: [set as stdout in configuration]
"""
_EVERY_S = 20.0
# Of playbooks/parts/verdict.yml. It fails so that ansible-playbook ends with a status of its own.
_VERDICT = "The verdict"


class CallbackModule(Default):  # type: ignore[misc]
    """The default callback, readable where it would be silent or loud."""

    CALLBACK_NAME = "readable"

    def __init__(self) -> None:
        super().__init__()
        self._task, self._since, self._said = "", time.monotonic(), time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._repeat, daemon=True).start()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ANN401  (Ansible's)
        """Remember which task runs, and since when."""
        super().v2_playbook_on_task_start(task, is_conditional)
        self._task, self._since = task.get_name(), time.monotonic()
        self._said = self._since

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ANN401
        """Print a verdict in its own words, everything else as ever."""
        said = result.result.get("msg") if result.task.get_name().endswith(_VERDICT) else None
        if not said:
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)
            return
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._display.display(f"{str(said).strip()}\nNo PASS, so ansible-playbook ends with an error status.")

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ANN401
        """Stop repeating: the play is over."""
        self._ended.set()
        super().v2_playbook_on_stats(stats)

    def _repeat(self) -> None:
        while not self._ended.wait(1):
            now = time.monotonic()
            if self._task and now - self._said >= _EVERY_S:
                self._said = now
                self._display.display(
                    f"... {self._task}: {now - self._since:.0f} s so far", color="bright gray"
                )
