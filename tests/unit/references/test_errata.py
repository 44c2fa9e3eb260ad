"""What the publications print wrong: each line of the errata is worked out here, apart from its text."""

import ast
import operator
import re

import pytest

from shakedown.references.files import load_profile, profile_names

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ERRATA = [(name, one) for name in profile_names() for one in load_profile(name).errata]


def worked_out(text):
    """The value of plain arithmetic; anything else is refused."""

    def value(node):
        match node:
            case ast.Expression(body=inner):
                return value(inner)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATIONS[type(op)](value(left), value(right))
        raise AssertionError(f"{text}: numbers, + - * / and brackets only")

    return value(ast.parse(text, mode="eval"))


@pytest.mark.parametrize(("name", "erratum"), ERRATA, ids=lambda part: getattr(part, "where", part))
def test_the_arithmetic_gives_what_is_called_right(name, erratum):
    """Catches: an erratum whose own figure is mistyped, or that calls wrong what is right."""
    right = worked_out(erratum.arithmetic)
    assert erratum.right == pytest.approx(right, rel=0.005)
    printed = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", erratum.printed)]
    assert printed, "printed must hold the wrong figure"
    assert all(abs(number - right) > 0.005 * right for number in printed)


def test_all_errata_are_found():
    """Catches: a key that is read no more, with which all tests above would vanish."""
    assert len({name for name, _ in ERRATA}) >= 2


def test_more_than_arithmetic_is_refused():
    """Catches: an errata line that calls something, which a reader could not check by hand."""
    with pytest.raises(AssertionError):
        worked_out("max(1, 2)")
