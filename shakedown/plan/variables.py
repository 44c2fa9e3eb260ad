"""Variables of the communication libraries for one run: configuration B of an A/B comparison.

They go over those of the site's own file, which stays as it is. The jobs hold them (jobs.json), and the plan
says so in a caveat: such a run says nothing about the site as it is configured.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from shakedown.intent.site import Site
from shakedown.records.errors import BadInput

LONGEST_VALUE = 500


def with_variables(site: Site, variables: Mapping[str, str]) -> Site:
    """Return the site with variables for nccl-tests and PyTorch's collectives, for one run.

    Raises:
        BadInput: a variable that is not of a communication library, a value that is no printable text, or a
            site without collectives that take variables.
    """
    if not variables:
        return site
    for name, value in variables.items():
        if not value.isprintable() or len(value) > LONGEST_VALUE:
            raise BadInput(f"the value of {name[:80]!r} is no printable text", fix="give NAME=VALUE")
    changed: dict[str, object] = {}
    for where, section in site.acceptance.asked():
        if not where.takes_variables:
            continue
        options = {**section.model_dump(), "variables": {**section.variables, **variables}}
        try:
            changed[where.key] = type(section).model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][1]) if len(first["loc"]) > 1 else "?"
            raise BadInput(
                f"{name[:80]!r} is no variable of a communication library",
                fix="give NCCL_*, UCX_*, OMPI_MCA_*, PMIX_MCA_* or CUDA_DEVICE_*",
            ) from None
    if not changed:
        takers = [f"acceptance.{s.key}" for s in site.acceptance.sections if s.takes_variables]
        raise BadInput(
            f"the site has neither {' nor '.join(takers)}, which alone take variables",
            fix="leave them out, or plan a site with collectives",
        )
    said = ", ".join(f"{name}={value}" for name, value in sorted(variables.items()))
    changed["caveats"] = (
        *site.acceptance.caveats,
        f"Set for this run alone, over the site's own file: {said}. It says nothing about the site as it is "
        "configured.",
    )
    return site.model_copy(update={"acceptance": site.acceptance.model_copy(update=changed)})
