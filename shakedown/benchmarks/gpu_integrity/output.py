"""What the program prints of each GPU, and which of its products and words of memory are wrong."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, model_validator

from shakedown.benchmarks.base.contract import NoneTwice, Output, Read, Value
from shakedown.benchmarks.base.output import damaged, less, lines_of_gpus, longer_than_recorded
from shakedown.records.base import Better, Params, Record, shape
from shakedown.records.reading import BadInput
from shakedown.records.results import RunProblem
from shakedown.run.nic_counters import JobFolder

Work = Literal["memory", "bf16", "fp8", "fp32", "attention"]


class GpuIntegrity(Record):
    """The same products again and again on every GPU, compared bit for bit; its memory read back."""

    # memory: patterns written and read back; the others: products of square matrices, attention as in
    # training. Empty: all that the GPU of acceptance.scope has; fp8 only where that is a model with it.
    work: Annotated[tuple[Work, ...], NoneTwice] = ()
    # Seconds of each kind of work; for a burn-in 600 or more.
    seconds: int = Field(default=6, ge=2, le=86400)
    # Side of the square matrices, in elements.
    matrix: int = Field(default=8192, ge=1024, le=16384, multiple_of=1024)
    memory_share: float = Field(
        default=0.9, gt=0, le=0.95
    )  # of a GPU's memory, that is written and read back


class GpuIntegritySettings(GpuIntegrity):
    """The site's options, and how many GPUs each node has."""

    name: Literal["gpu_integrity"] = "gpu_integrity"
    gpus: dict[str, int]


Whole = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bits = Annotated[str, shape(r"^0x[0-9a-f]{1,16}$", "bits in base 16", "0xc205")]
Digest = Annotated[
    str, shape(r"^[0-9a-f]{64}$", "64 digits of 0-9 and a-f as sha256sum prints them", "0123456789abcdef" * 4)
]


class _Header(Record):
    type: Literal["header"]
    gpu: int = Field(ge=0, le=63)
    name: str
    uuid: str
    memory_bytes: int = Field(gt=0)
    matrix: int
    software: Mapping[str, str]  # driver, libraries, and what changes how they compute


class ProductPlace(Record):
    """Where one product differs."""

    number: Whole  # of the product
    elements: int = Field(gt=0)
    rows: tuple[Whole, Whole]  # first and last with such an element
    columns: tuple[Whole, Whole]
    row: Whole  # of the first element, and its bits
    column: Whole
    due: Bits
    found: Bits

    @property
    def tile(self) -> tuple[int, int, int, int]:
        """First and last tile of 128 x 128 that hold all of it: one multiprocessor computes a tile."""
        return (
            self.rows[0] // _TILE,
            self.columns[0] // _TILE,
            self.rows[1] // _TILE,
            self.columns[1] // _TILE,
        )


class _Some(Record):
    work: Work
    seconds: Seconds
    end: Seconds


class Products(_Some):
    """All products of one kind on one GPU."""

    type: Literal["products"]
    digest: Digest  # of the first product
    inputs: Digest  # of what was multiplied
    cold: Whole  # products with pauses between them, at the highest clock
    products: int = Field(gt=0)
    wrong: Whole  # that differ from the first
    moved: Whole  # elements that differ where the same rows are computed by other multiprocessors
    places: tuple[ProductPlace, ...]
    ms: Seconds  # that a product and its comparison took without pauses

    @model_validator(mode="after")
    def _sound(self) -> Self:
        spent_s = self.ms * (self.products - self.cold) / 1e3
        if not self.cold <= self.products or spent_s > self.seconds * _ROUNDING:
            raise ValueError(
                f"{self.products} products of {self.ms:.4g} ms do not fit into {self.seconds:.4g} s"
            )
        if self.wrong > self.products or len(self.places) != min(self.wrong, _PLACES):
            raise ValueError(f"{self.wrong} wrong products, and {len(self.places)} places")
        return self


class MemoryPlace(Record):
    """A word that is not as it was written; `again`: wrong words of its block, read once more."""

    read: Whole
    byte: Whole  # from the beginning of what was tested
    words: int = Field(gt=0)
    again: Whole
    due: Bits
    found: Bits


class Memory(_Some):
    """The memory of one GPU, written and read back."""

    type: Literal["memory"]
    bytes: Whole
    reads: Whole  # of all of it
    errors: Whole  # words
    places: tuple[MemoryPlace, ...]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if bool(self.errors) != bool(self.places):
            raise ValueError(f"{self.errors} errors, and {len(self.places)} places")
        return self


class _Cannot(Record):
    type: Literal["cannot"]
    work: Work
    why: str


class _End(Record):
    type: Literal["end"]


class GpuIntegrityRun(Record):
    """All that one GPU did."""

    gpu: int
    name: str
    uuid: str
    memory_bytes: int
    matrix: int
    software: Mapping[str, str]
    did: Mapping[Work, Products | Memory]
    cannot: Mapping[Work, str]  # why it cannot do a kind of work


_ROUNDING = 1.001
_PLACES = 8  # that the program tells
_TILE = 128
_FEWEST = 32  # products; fewer are no repetition
_Lines = _Header | Products | Memory | _Cannot | _End
_LINE: TypeAdapter[_Lines] = TypeAdapter(Annotated[_Lines, Field(discriminator="type")])


def parse_gpu_integrity(text: str, *, file: str | Path | None = None) -> tuple[GpuIntegrityRun, ...]:
    """Read what the GPUs of one node did.

    Raises BadInput: a line that is none of ours, a GPU that did not come to its end, or is there twice.
    """
    runs: dict[int, GpuIntegrityRun] = {}
    did: dict[Work, Products | Memory] = {}
    cannot: dict[Work, str] = {}
    about = "not a line of a GPU's integrity"
    for number, header, found in lines_of_gpus(text, _LINE, _Lines, about=about, file=file):
        if isinstance(found, _Header):
            did, cannot = {}, {}
        elif isinstance(found, _End):
            said = header.model_dump(exclude={"type"})
            runs[header.gpu] = GpuIntegrityRun(**said, did=did, cannot=cannot)
        elif found.work in did or found.work in cannot:
            damaged(f"GPU {header.gpu} did {found.work} twice", file, number)
        elif isinstance(found, _Cannot):
            cannot[found.work] = found.why
        else:
            did[found.work] = found
    return tuple(runs[gpu] for gpu in sorted(runs))


def called(output: Output[GpuIntegritySettings]) -> Iterator[str]:
    """Yield what CUDA calls each GPU."""
    yield from (run.name for run in parse_gpu_integrity(output.text, file=output.file))


def gpu_integrity(output: Output[GpuIntegritySettings]) -> Iterator[Value]:
    """Yield of each GPU how many products or words are wrong, and whether its products are its fellows'.

    Raises BadInput: the output cannot be read, or is of less than was ordered.
    """
    order, node = output.order, output.node
    work: Work = output.record.test.removeprefix("gpu_integrity_")  # type: ignore[assignment]
    runs = parse_gpu_integrity(output.text, file=output.file)
    _as_set(output, runs, work)
    for run in runs:
        params: Params = {"check": checks(work, 1)[0], "gpu": run.gpu}
        if work in run.cannot:
            why = _problem("not-run", f"{node}: GPU {run.gpu} cannot do {work}: {run.cannot[work]}")
            for name in checks(work, len(_cards(order))):
                yield Read("wrong", None, "1", Better.LOWER, {**params, "check": name}, problem=why)
            continue
        found = run.did[work]
        if isinstance(found, Memory):
            yield _of_memory(order, run, found, params)
            continue
        yield Read("wrong", float(found.wrong), "1", Better.LOWER, params, _told(found))
        mine, like, other = _like(output, run, work, found)
        yield _moved(mine, like, {**params, "check": "moved"})
        if len(_cards(order)) > 1:
            yield _alike(mine, like, other, work, {**params, "check": "alike"})


def checks(work: Work, cards: int) -> tuple[str, ...]:
    """Return the names of the checks of one kind of work, where there are so many cards."""
    return ("march",) if work == "memory" else ("repeat", "moved", "alike")[: 2 + (cards > 1)]


def _cards(order: GpuIntegritySettings) -> list[tuple[str, int]]:
    return [(node, gpu) for node, many in order.gpus.items() for gpu in range(many)]


def _as_set(output: Output[GpuIntegritySettings], runs: Sequence[GpuIntegrityRun], work: Work) -> None:
    order, counted_s = output.order, 0.0
    if (gpus := [run.gpu for run in runs]) != list(range(order.gpus[output.node])):
        less(output, f"it is of GPUs {', '.join(map(str, gpus))}, {order.gpus[output.node]} were ordered")
    for run in runs:
        if run.matrix != order.matrix:
            less(output, f"GPU {run.gpu} worked on matrices of {run.matrix}")
        found = run.did.get(work)
        if found is None and work not in run.cannot:
            less(output, f"GPU {run.gpu} did no {work}")
        if found is None:
            continue
        if found.seconds < order.seconds:
            less(output, f"GPU {run.gpu} did {work} for {found.seconds:.4g} s, {order.seconds} were ordered")
        if isinstance(found, Products) and found.products < _FEWEST:
            less(output, f"GPU {run.gpu} did {found.products} products of {work}: too few to be repetitions")
        if isinstance(found, Memory) and found.reads < 3:
            less(output, f"GPU {run.gpu} read its memory back {found.reads} times")
        counted_s = max(counted_s, sum(some.seconds for some in run.did.values()))
    if odd := longer_than_recorded(counted_s, output.record):
        less(output, odd)


def _problem(kind: Literal["not-run", "environment", "other"], message: str) -> RunProblem:
    return RunProblem(kind=kind, message=message[:900])


def _told(found: Products) -> str:
    said = f"{found.products} products, {found.cold} of them cold, the others {found.ms:.4g} ms each"
    if not found.wrong:
        return f"{said}: all alike, {found.digest[:12]}"
    first = found.places[0]
    tiles = {place.tile for place in found.places}
    where = (
        "in one tile of 128 x 128 each time, which one multiprocessor computes"
        if len(tiles) == 1
        else "in other tiles"
    )
    many = f"; the {len(found.places)} told are {where}" if len(found.places) > 1 else ""
    return (
        f"{found.wrong} of {said} differ; product {first.number}: {first.elements} elements in rows "
        f"{first.rows[0]} to {first.rows[1]}, columns {first.columns[0]} to {first.columns[1]}; "
        f"row {first.row}, column {first.column} is {first.found}, {first.due} before{many}"
    )[:900]


def _of_memory(order: GpuIntegritySettings, run: GpuIntegrityRun, found: Memory, params: Params) -> Read:
    said = f"{found.bytes / 2**30:.1f} of {run.memory_bytes / 2**30:.1f} GiB, read back {found.reads} times"
    if found.errors:
        first = found.places[0]
        kept = "wrong again when read once more" if first.again else "right when read once more"
        told = f"{found.errors} words wrong in {said}; byte {first.byte:#x} is {first.found}, "
        told += f"{first.due} was written"
        return Read("wrong", float(found.errors), "1", Better.LOWER, params, f"{told}; {kept}"[:900])
    if found.bytes < order.memory_share * run.memory_bytes:
        why = _problem(
            "environment",
            f"GPU {run.gpu}: only {said}, {order.memory_share:.0%} were ordered: no more was free",
        )
        return Read("wrong", None, "1", Better.LOWER, params, problem=why)
    return Read("wrong", 0.0, "1", Better.LOWER, params, said)


class _Card(NamedTuple):
    """A card's products: alike cards with the same software must have the same bits."""

    node: str
    gpu: int
    uuid: str
    kind: tuple[str, ...]  # what it is called and what computes on it
    bits: tuple[str, str]  # digests of what was multiplied, by the card itself, and of the product
    moved: int

    def __str__(self) -> str:
        return f"GPU {self.gpu} of {self.node}"


def _all_runs(folder: JobFolder, nodes: tuple[str, ...]) -> dict[str, tuple[GpuIntegrityRun, ...]]:
    """Return what each node's file holds; one that cannot be read says so in its own cells."""
    found = {}
    for node in nodes:
        name = f"gpu_integrity.{node}.jsonl"
        try:
            found[node] = parse_gpu_integrity(folder.text(name), file=name)
        except (BadInput, OSError):
            continue
    return found


def _like(
    output: Output[GpuIntegritySettings], run: GpuIntegrityRun, work: Work, found: Products
) -> tuple[_Card, list[_Card], _Card | None]:
    """Return this card, those of its name, driver and libraries, and one that is not, if there is one."""
    nodes = tuple(output.order.gpus)
    runs = output.folder.kept(("gpu_integrity", nodes), lambda: _all_runs(output.folder, nodes))
    cards = [
        _Card(node, each.gpu, each.uuid, _kind(each), (did.inputs, did.digest), did.moved)
        for node, here in runs.items()
        for each in here
        if isinstance(did := each.did.get(work), Products)
    ]
    mine = _Card(output.node, run.gpu, run.uuid, _kind(run), (found.inputs, found.digest), found.moved)
    # A GPU that two nodes share is no second card.
    others = {(card.uuid or str(card)): card for card in cards if card[:2] != mine[:2]}
    others.pop(mine.uuid, None)
    like = [card for card in others.values() if card.kind == mine.kind]
    return mine, like, next((card for card in others.values() if card.kind != mine.kind), None)


def _moved(mine: _Card, like: list[_Card], params: Params) -> Read:
    told = f"{mine.moved} elements differ where other multiprocessors compute the same rows"
    if not mine.moved or any(card.moved == mine.moved and card.bits == mine.bits for card in like):
        # As on a like card to the bit: it is how this library sums there.
        return Read("wrong", 0.0, "1", Better.LOWER, params, told)
    if any(card.moved == 0 for card in like):
        return Read("wrong", 1.0, "1", Better.LOWER, params, f"{told}, and none on a like card")
    told += ": one of them computes wrong, or this library sums otherwise there; a like card would tell which"
    return Read("wrong", None, "1", Better.LOWER, params, problem=_problem("other", told))


def _alike(mine: _Card, like: list[_Card], other: _Card | None, work: Work, params: Params) -> Read:
    if not like:
        differs = f": {_differs(mine, other)}" if other else ""
        why = _problem("not-run", f"{mine}: no other card has its name, driver and libraries{differs}")
        return Read("wrong", None, "1", Better.LOWER, params, problem=why)
    counts = Counter(card.bits for card in (mine, *like))
    bits, many = counts.most_common(1)[0]
    if len(counts) == 1:
        return Read("wrong", 0.0, "1", Better.LOWER, params, f"as {len(like)} like cards: {bits[1][:12]}")
    if 2 * many <= len(like) + 1:
        odd = next(str(card) for card in like if card.bits != mine.bits)
        told = f"{mine} and {odd} have other products of {work} with the same driver and libraries: one is "
        told += "wrong, a third like card would tell which"
        return Read("wrong", None, "1", Better.LOWER, params, problem=_problem("other", told))
    apart = [str(card) for card in (mine, *like) if card.bits != bits]
    told = f"{', '.join(apart[:4])} differ from {many} like cards with the same driver and libraries"
    return Read("wrong", float(mine.bits != bits), "1", Better.LOWER, params, told[:900])


def _kind(run: GpuIntegrityRun) -> tuple[str, ...]:
    return (run.name, *(f"{key} {value}" for key, value in sorted(run.software.items())))


def _differs(mine: _Card, other: _Card) -> str:
    own, theirs = (sorted(set(a.kind) - set(b.kind)) for a, b in ((mine, other), (other, mine)))
    return f"{', '.join(own) or 'nothing more'} here, {', '.join(theirs) or 'nothing more'} on {other}"
