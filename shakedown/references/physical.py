"""Profile `physical`: floors derived from ceilings, for any link speed, number of NICs and number of nodes.

Physics says what is possible; what must be reached is a share of it that healthy hardware of every
generation clears and a link at half rate, a narrow PCIe link or a path over TCP does not. A floor is no
target: a site signs figures of its own (`shakedown references propose`) once it has measured.

What physics bounds loosely or not at all (small messages, training) is shown beside its ceiling and decides
nothing, or has no floor and must be learnt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shakedown.intent.site import Fabric, Site, hosts_on_uplink, oversubscription_percent
from shakedown.physics.host_links import GpuModel, by_name
from shakedown.physics.training import peak_tflop_per_s
from shakedown.records.base import Better, Stage
from shakedown.records.plan import ReferenceKind
from shakedown.references.catalogue import Catalogue, ReferenceEntry

NAME = "physical"
SET_BY = "Shakedown maintainers - a floor that a healthy link clears and one at half rate does not"
# Shares of the ceiling. Published and own figures: perftest 97.5 to 99.7 % (100 to 400 Gb/s); rings between
# nodes 94 to 99 %; within a node 76 to 82 %, alltoall 70 %, NVLink SHARP 61 to 69 % of its model; copies
# from and to the host 82 to 95 %, between GPUs 84 to 91 % (docs/reference/references.md).
_PERFTEST, _BETWEEN_NODES, _WITHIN_NODE, _ALLTOALL, _NVLS, _COPIES = 0.90, 0.85, 0.70, 0.60, 0.55, 0.75
# Large products of H100 and H200 at their power cap reach 65 to 68 % of the dense peak (docs/evidence/gpu.md,
# reference profile h200_gpu_rate); a card at half of its highest clock reaches 45 %.
_PRODUCTS, _PRODUCTS_KNOWN = 0.55, ("H100-SXM", "H200-SXM")
_UNKNOWN_PRODUCTS = "what a healthy card of this model reaches was not measured: shown, judged by no floor"
# Of what host memory gives: gates of other fleets for GPUDirect writes are 375 of 400 and 185 of 200 Gb/s.
_OF_HOST = 0.90
_GPUDIRECT = "azurehpc-health-checks: GPUDirect writes at 94 to 96 % of the ceiling, 375 and 185 Gb/s"
_FAR = "no source gives a floor for a far GPU: shown; sign one of your own to judge it"
_CROWD = "no source gives a floor for many senders at one NIC: shown; sign one of your own to judge it"
# Below these sizes start-up, not the link, decides: what is measured is shown and held to its ceiling.
_LARGE_MESSAGE, _LARGE_COLLECTIVE = 65536, 1 << 30
_LONGEST_MESSAGE = 1_000_000  # that a formula takes (references.ceilings)
_DEAD = 0.01  # of the ceiling; for what is only shown
# Half a round trip: two NICs of 2 us, five switches of 1 us, 2 km of fibre at 5 us/km. Twice that is no path
# of the fabric; a 99th percentile also waits behind other traffic.
_LATENCY_US, _LATENCY_P99_US = 40.0, 400.0
_HANG_US = 5e6
_SHOWN = "start-up, not the link, decides at this size: shown and held to its ceiling, judged by no floor"
_NO_FLOOR = "physics gives no bound on the time of a small message: shown, judged by no floor"
_MAX_PAYLOAD_BYTES = 512  # PCIe Max Payload Size that gives the highest ceiling of what servers use


@dataclass(frozen=True)
class PhysicalFloors:
    """The floors of one site: makes the entry of a cell from its facts."""

    fabric: Fabric | None
    gpu: GpuModel | None
    # What its leaves' hosts send over what their uplinks carry, and the most flows a hash puts on one uplink.
    oversubscription: float = 1.0
    sharing: float = 1.0

    def __call__(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        """Return the floor of a cell, or None where physics says nothing of it."""
        if "configuration" in facts:
            return None  # another network than the one under test
        if test.startswith("ib_"):
            return self._perftest(test, metric, facts)
        if test.startswith("gpudirect_") or test in ("incast", "all_to_all"):
            return (self._incast if "senders" in facts else self._gpudirect)(test, metric, facts)
        if "_memcpy_" in test or test.startswith("gpu_rate_"):
            return (self._copy if "_memcpy_" in test else self._products)(test, metric)
        if test.startswith("nccl_"):
            return self._nccl(test, metric, facts)
        return self._mpi(test, metric, facts) if test.startswith("mpi_") else None

    def _perftest(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        if self.fabric is None:
            return None
        size = facts["size_bytes"]
        if metric == "bandwidth":
            ceiling = {**self._roce("roce_payload"), "operation": test.split("_")[1]}
            if size <= _LONGEST_MESSAGE:  # a longer one has, but for 0.002 %, the ceiling of one without end
                ceiling["message_bytes"] = size
            share, scope, why = self._of_way(facts)
            return self._share(
                Stage.FABRIC,
                test,
                metric,
                "Gb/s",
                ceiling,
                share,
                size >= _LARGE_MESSAGE,
                {"size_bytes": size, **scope},
                why,
            )
        if metric in ("latency_typical", "latency_p99"):
            most = _LATENCY_US if metric == "latency_typical" else _LATENCY_P99_US
            # Of a large message the link's own time counts, at a tenth of its rate.
            most += 8e-3 * size / (0.1 * self.fabric.link_speed_gbps)
            return self._most(Stage.FABRIC, test, metric, most, "us", {"size_bytes": size})
        return None

    def _gpudirect(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        """A NIC reaches its nearest GPU as it does the host's memory; how it reaches a far one is shown."""
        if self.fabric is None:
            return None
        memory, size = facts["memory"], facts["size_bytes"]
        share, scope, why = self._of_way(facts)
        scope = {"size_bytes": size, "memory": memory, **scope}
        if metric == "share_of_host":
            common = _common(Stage.FABRIC, test, metric, "%", Better.HIGHER, scope)
            least = {"value": 100, "tolerance": round(1 - _OF_HOST, 4), "source": _GPUDIRECT}
            shown = {"value": 1, "limit": 1, "source": "shown", "gates": False, "note": _FAR}
            return ReferenceEntry.model_validate({**common, **(least if memory == "near" else shown)})
        if metric not in ("bandwidth", "bandwidth_both"):
            return None
        ceiling = {**self._roce("roce_payload"), "operation": test.removeprefix("gpudirect_")}
        if metric == "bandwidth_both":
            ceiling["speed_gbps"] = 2 * ceiling["speed_gbps"]  # each direction has the link's speed
        if size <= _LONGEST_MESSAGE:
            ceiling["message_bytes"] = size
        near = memory != "far"
        if memory == "near":
            share *= _OF_HOST
        # Both ways at once also share the NIC's PCIe link, of which nothing is known here.
        gates = near and metric == "bandwidth"
        unit, stage = "Gb/s", Stage.FABRIC
        entry = self._share(stage, test, metric, unit, ceiling, share, gates, scope, why)
        return entry if near else entry.model_copy(update={"note": _FAR})

    def _incast(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        """All senders together bring no more than the receiver's link carries; how much less is not known."""
        if self.fabric is None or metric != "bandwidth_in":
            return None
        ceiling = {**self._roce("roce_payload"), "operation": "write"}  # of send the same
        if facts["size_bytes"] <= _LONGEST_MESSAGE:
            ceiling["message_bytes"] = facts["size_bytes"]
        scope = {key: facts[key] for key in ("size_bytes", "senders")}
        entry = self._share(Stage.FABRIC, test, metric, "Gb/s", ceiling, _PERFTEST, False, scope)
        return entry.model_copy(update={"note": _CROWD})

    def _of_way(self, facts: Mapping[str, Any]) -> tuple[float, dict[str, Any], str]:
        """Return share of the ceiling, scope and reason of a pair's way (benchmarks/perftest/ways.py).

        All hosts of a leaf may send over its uplinks at once. Balanced, each gets the inverse of the
        oversubscription; where a hash chooses (ecmp), all flows may meet on one uplink.
        """
        way = facts.get("way")
        if way in (None, "same-leaf"):
            return _PERFTEST, {}, ""
        scope = {key: facts[key] for key in ("way", "routing", "oversubscription_percent") if key in facts}
        if facts.get("routing") == "ecmp":
            sharing = max(self.sharing, self.oversubscription, 1.0)
            why = f", over {sharing:g}: so many flows of a leaf may be hashed to one uplink"
            return _PERFTEST / sharing, scope, why if sharing > 1 else ""
        over = max(1.0, self.oversubscription)
        return _PERFTEST / over, scope, f", over {over:g}: the uplinks are oversubscribed" if over > 1 else ""

    def _copy(self, test: str, metric: str) -> ReferenceEntry | None:
        if self.gpu is None or metric != "bandwidth":
            return None
        if not test.startswith("device_to_device"):
            ceiling = {
                "formula": "pcie_payload",
                "generation": self.gpu.pcie_generation,
                "width": 16,
                "max_payload_bytes": _MAX_PAYLOAD_BYTES,
            }
        elif self.gpu.nvlink_gb_per_s is None:
            return None
        else:
            both = 2 if "bidirectional" in test else 1
            ceiling = {"formula": "link", "gb_per_s": self.gpu.nvlink_gb_per_s, "links": both}
        return self._share(Stage.NODE, test, metric, "GB/s", ceiling, _COPIES, True, {})

    def _products(self, test: str, metric: str) -> ReferenceEntry | None:
        """Products of a GPU at its power cap; of models that were not measured they are only shown."""
        if self.gpu is None or test not in ("gpu_rate_bf16", "gpu_rate_fp8"):
            return None
        peak = peak_tflop_per_s(self.gpu.name, fp8=test == "gpu_rate_fp8")
        if peak is None:
            return None
        ceiling = {"formula": "peak", "tflop_per_s": peak}
        known = self.gpu.name in _PRODUCTS_KNOWN and metric == "rate"
        entry = self._share(Stage.NODE, test, metric, "TFLOP/s", ceiling, _PRODUCTS, known, {})
        return entry if known else entry.model_copy(update={"note": _UNKNOWN_PRODUCTS})

    def _nccl(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        size, nodes = facts.get("size_bytes"), facts["nodes"]
        if metric == "time" and size is not None:
            return self._most(Stage.COLLECTIVE, test, metric, _HANG_US, "us", {"size_bytes": size}, _NO_FLOOR)
        if metric != "busbw" or size is None:
            return None
        operation, nvls = test.removeprefix("nccl_"), facts.get("algorithm") == "nvls"
        if nodes == 1:
            made = self._within(operation, facts["gpus"], nvls=nvls)
        elif nvls or self.fabric is None:
            return None
        else:
            made = self._between(operation, facts["gpus"], nodes)
        if made is None:
            return None
        ceiling, share = made
        scope = {key: facts[key] for key in ("nodes", "gpus", "size_bytes", "algorithm")}
        return self._share(
            Stage.COLLECTIVE, test, metric, "GB/s", ceiling, share, size >= _LARGE_COLLECTIVE, scope
        )

    def _within(self, operation: str, gpus: int, *, nvls: bool) -> tuple[dict[str, Any], float] | None:
        if self.gpu is None or self.gpu.nvlink_gb_per_s is None:
            return None
        rate = self.gpu.nvlink_gb_per_s
        if nvls:
            return (
                ({"formula": "nvls_busbw", "nvlink_gb_per_s": rate, "ranks": gpus}, _NVLS)
                if operation == "all_reduce"
                else None
            )
        return {"formula": "link", "gb_per_s": rate}, _ALLTOALL if operation == "alltoall" else _WITHIN_NODE

    def _between(self, operation: str, gpus: int, nodes: int) -> tuple[dict[str, Any], float] | None:
        assert self.fabric is not None
        nics, per_node = len(self.fabric.rails), gpus // nodes
        if operation in ("all_reduce", "all_gather", "reduce_scatter"):
            return {**self._roce("ring_busbw"), "nics_per_node": nics}, _BETWEEN_NODES
        if operation == "alltoall" and nics == per_node:
            return {**self._roce("alltoall_busbw"), "ranks": gpus, "ranks_per_node": per_node}, _ALLTOALL
        return None

    def _mpi(self, test: str, metric: str, facts: Mapping[str, Any]) -> ReferenceEntry | None:
        size = facts.get("size_bytes")
        scope = {} if size is None else {"size_bytes": size}
        if metric == "wrong":
            return self._most(Stage.COLLECTIVE, test, metric, 0, "1", scope)
        if metric == "time":
            return self._most(Stage.COLLECTIVE, test, metric, _HANG_US, "us", scope, _NO_FLOOR)
        if self.fabric is None or metric not in ("bandwidth", "busbw"):
            return None
        ceiling = {**self._roce("ring_busbw"), "nics_per_node": len(self.fabric.rails)}
        return self._share(Stage.COLLECTIVE, test, metric, "GB/s", ceiling, _DEAD, False, scope)

    def _roce(self, formula: str) -> dict[str, Any]:
        assert self.fabric is not None
        return {
            "formula": formula,
            "speed_gbps": self.fabric.link_speed_gbps,
            "rdma_mtu_bytes": self.fabric.mtu_bytes.rdma,
            "ip_version": self.fabric.ip_version,
        }

    @staticmethod
    def _share(
        stage: Stage,
        test: str,
        metric: str,
        unit: str,
        ceiling: dict[str, Any],
        share: float,
        gates: bool,
        scope: Mapping[str, Any],
        why: str = "",
    ) -> ReferenceEntry:
        source = f"{100 * (share if gates else _DEAD):.3g} % of the ceiling{why}"
        share = share if gates else _DEAD
        return ReferenceEntry.model_validate(
            {
                **_common(stage, test, metric, unit, Better.HIGHER, scope),
                "value": ceiling,
                "ceiling": ceiling,
                "tolerance": round(1 - share, 4),
                "source": source,
                "gates": gates,
                "note": None if gates else _SHOWN,
            }
        )

    @staticmethod
    def _most(
        stage: Stage,
        test: str,
        metric: str,
        most: float,
        unit: str,
        scope: Mapping[str, Any],
        note: str | None = None,
    ) -> ReferenceEntry:
        return ReferenceEntry.model_validate(
            {
                **_common(stage, test, metric, unit, Better.LOWER, scope),
                "value": most,
                "limit": most,
                "source": "arithmetic; none may be wrong"
                if unit == "1"
                else "two NICs, five switches and 2 km of fibre, twice",
                "gates": note is None,
                "note": note,
            }
        )


def _common(
    stage: Stage, test: str, metric: str, unit: str, better: Better, scope: Mapping[str, Any]
) -> dict[str, Any]:
    words = [NAME, test, metric, *(f"{value}" for _, value in sorted(scope.items()))]
    return {
        "id": "-".join(words).replace("_", "-"),
        "stage": stage,
        "test": test,
        "metric": metric,
        "scope": dict(scope),
        "unit": unit,
        "better": better,
        "kind": ReferenceKind.PHYSICAL,
        "set_by": SET_BY,
    }


def add_physical(catalogue: Catalogue, site: Site) -> None:
    """Let a catalogue have the floors of a site, after all that its profiles hold."""
    fabric = site.fabric if isinstance(site.fabric, Fabric) else None
    model = site.acceptance.scope.get("gpu")
    gpu = by_name(model) if isinstance(model, str) else None
    if fabric is None:
        catalogue.derived = PhysicalFloors(None, gpu)
    else:
        over = (oversubscription_percent(site) or 100) / 100
        catalogue.derived = PhysicalFloors(fabric, gpu, over, hosts_on_uplink(site))
