"""One line from pydantic's findings: the key as the file has it, what is wrong, and the nearest known key."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shakedown.records.base import Params, Record
from shakedown.records.reading import explain, refusal
from tests.kit.cases import cases


class Roce(Record):
    """A model with a key that is easily misspelt."""

    dscp: Annotated[int, Field(le=63)]
    priority: int = 3


class Wide(Record):
    """One branch of a union."""

    roce: tuple[Roce, ...]
    by_name: dict[str, Roce] = Field(default_factory=dict)
    params: Params = Field(default_factory=dict)


class Narrow(Record):
    """The other branch, which knows none of those keys."""

    none: bool = True


@pydantic_dataclass(config=ConfigDict(extra="forbid"))
class Strict:
    """A dataclass that takes no other key."""

    steps: int


class Document(Record):
    """What a file holds."""

    fabric: Wide | Narrow
    schema_: int = Field(default=1, alias="schema")


@dataclass
class Plain:
    """A dataclass as parsers have them."""

    rows: list[Roce]


def said(document, model=Document):
    """Return the sentence about a document that is refused."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(document)
    return explain(caught.value, model)


GOOD = {"dscp": 26}


@cases(
    "document, sentence",
    ({"fabric": {"roce": [{"dcsp": 26}]}}, "fabric.roce.0: unknown key dcsp, did you mean dscp?"),
    (
        {"fabric": {"roce": [GOOD], "by_name": {"a": {"dscp": 1, "priorty": 2}}}},
        "fabric.by_name.a: unknown key priorty, did you mean priority?",
    ),
    ({"fabric": {"roce": [GOOD]}, "shema": 1}, "unknown key shema, did you mean schema?"),
    ({"fabric": {"roce": [GOOD]}, "zzz": 1}, "unknown key zzz"),
    (
        {"fabric": {"roce": [{"dscp": 64}]}},
        "fabric.roce.0.dscp: Input should be less than or equal to 63 (got 64)",
    ),
    ({}, "fabric: Field required"),
    (7, "Input should be a valid dictionary or instance of Document"),
    (
        {"fabric": {"roce": [GOOD], "params": {"size": [1]}}},
        "fabric.params.size: Input should be a valid boolean (got [1])",
    ),
)
def test_the_sentence(document, sentence):
    """Catches: a misspelt key reported as the one that is missing for it, and pydantic's marks in a path."""
    assert said(document) == sentence


def test_the_keys_of_a_dataclass_are_known_as_well():
    """Catches: a walk that stops at the first type that is no model."""
    assert said({"rows": [{"dcsp": 1}]}, Plain) == "rows.0: unknown key dcsp, did you mean dscp?"
    assert said({"steps": 1, "stepps": 5}, Strict) == "unknown key stepps, did you mean steps?"


def test_the_model_that_the_error_names_is_taken():
    """Catches: keys of one model proposed for another where one place reads several."""
    with pytest.raises(ValidationError) as caught:
        Roce.model_validate({"dscp": 1, "nonne": 2})
    assert explain(caught.value, Document | Narrow | Roce) == "unknown key nonne"


def test_file_line_and_fix_are_on_the_line():
    """Catches: a refusal that leaves the reader to look for the place."""
    with pytest.raises(ValidationError) as caught:
        Roce.model_validate({"dscp": "x" * 1000})
    line = str(refusal(caught.value, Roce, file="a.yml", line=3, about="no class", fix="mend it"))
    assert line.startswith("a.yml:3: no class: dscp: Input should be a valid integer")
    assert line.endswith(" -- mend it")
    assert len(line) < 300
