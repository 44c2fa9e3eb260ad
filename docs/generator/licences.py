"""The table of what the locks install, and under which licences, from the CycloneDX documents beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generator.text import made, table

PAGE = "docs/reference/licences.md"
LOCKS = Path(__file__).resolve().parents[2] / "requirements"
PARTS = {"controller": "The controller, with what developers use", "head": "The host that submits the jobs"}
# Whose metadata name none: by PySocks' LICENSE, and by the head of LoadGen's loadgen.cc.
UNSAID = {"PySocks": "BSD-3-Clause", "mlcommons_loadgen": "Apache-2.0"}


def components(part: str) -> list[dict[str, Any]]:
    """Return what a part has installed."""
    document = json.loads((LOCKS / f"{part}.cdx.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document["components"]
    return sorted(found, key=lambda one: str(one["name"]).lower())


def licences(component: dict[str, Any]) -> str:
    """Return a component's licences, as its metadata name them; empty: they name none."""
    said = []
    for one in component.get("licenses", ()):
        licence = one.get("license", {})
        said.append(one.get("expression") or licence.get("id") or licence.get("name", ""))
    words = dict.fromkeys(name.rpartition(" :: ")[2].splitlines()[0] for name in said if name.strip())
    return ", ".join(words) or UNSAID.get(component["name"], "")


def pages() -> dict[str, str]:
    """Return the page."""
    parts = [made("requirements/*.cdx.json (make sbom)"), "# What is installed, and its licences\n"]
    for part, title in PARTS.items():
        rows = [(one["name"], one["version"], licences(one)) for one in components(part)]
        parts += [f"## {title}\n", table(("package", "version", "licence"), rows)]
    return {PAGE: "\n".join(parts)}
