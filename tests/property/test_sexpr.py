"""Printed S-expressions parse to the same value, and any text gives forms or a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.examples import examples
from waypost.errors import InvalidDocument
from waypost.model.json import dump_json
from waypost.protocols.rtfs.agent_profile import parse_profile
from waypost.protocols.rtfs.card_derivation import derive_card, type_to_schema
from waypost.protocols.rtfs.sexpr import (
    Context,
    Form,
    Keyword,
    List,
    Map,
    Quote,
    Symbol,
    Vector,
    form_to_json,
    json_to_form,
    parse_form,
    parse_forms,
    print_form,
    print_line,
    profile_key,
)

thoroughly = settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)
idents = st.from_regex(r"[A-Za-z_$*=<>!?&%][A-Za-z0-9_$+*=<>!?&%.:-]{0,8}", fullmatch=True)
names = st.one_of(idents, st.builds("{}/{}".format, idents, idents), st.just("é"))
symbols = (names | st.sampled_from(["/", "-", "+", "-a", "->"])).filter(
    lambda name: name not in ("true", "false", "nil")
)
integers = st.integers(-(10**40) + 1, 10**40 - 1)
keywords = st.builds(Keyword, names | texts)
atoms: st.SearchStrategy[Form] = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    keywords,
    st.builds(Symbol, symbols),
    st.builds(Context, idents),
)


def _maps(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    keys = keywords | texts | integers
    return st.dictionaries(keys, inner, max_size=4).map(lambda made: Map(tuple(made.items())))


forms: st.SearchStrategy[Form] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: List(tuple(items))),
        st.lists(inner, max_size=4).map(lambda items: Vector(tuple(items))),
        _maps(inner),
        st.builds(Quote, inner),
    ),
    max_leaves=20,
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
PIECES = [*"()[]{}\"\\#'@;,:/a1-+.^`~é😀\n\x00 \ufeff", "#_", "\\u", "D83D", "e5", "nil", "agent-profile", ":id"]
scraps = st.lists(st.sampled_from(PIECES) | texts, max_size=40).map("".join)

Result = TypeVar("Result")


def outcome(work: Callable[[], Result]) -> Result | InvalidDocument:
    try:
        return work()
    except InvalidDocument as refusal:
        return refusal


@thoroughly
@given(form=forms)
def test_a_printed_form_parses_to_the_same_form(form: Form) -> None:
    assert parse_form(print_form(form)) == form
    assert parse_form(print_line(form)) == form
    assert repr(parse_form(print_form(form))) == repr(form)  # 1, 1.0 and true are equal to Python


@thoroughly
@given(text=scraps)
def test_any_text_is_forms_or_a_clear_error(text: str) -> None:
    for lenient in (False, True):
        found = outcome(lambda lenient=lenient: parse_forms(text, lenient=lenient))  # type: ignore[misc]
        if isinstance(found, InvalidDocument):
            assert (found.path or "").startswith("line ")
        else:
            assert parse_forms(" ".join(map(print_form, found))) == found


@thoroughly
@given(data=st.binary(max_size=60))
def test_any_bytes_are_forms_or_a_clear_error(data: bytes) -> None:
    found = outcome(lambda: parse_forms(data))
    assert isinstance(found, tuple) or found.details["line"] >= 1


@thoroughly
@given(value=json_values)
def test_json_survives_as_data(value: object) -> None:
    written = parse_form(print_form(json_to_form(value, profile_key)))
    assert form_to_json(written, "", []) == value


@thoroughly
@given(form=forms)
def test_every_form_in_a_types_place_has_a_schema(form: Form) -> None:
    dump_json(type_to_schema(form))


@thoroughly
@given(items=st.lists(forms, max_size=6))
def test_any_profile_is_a_card_or_a_clear_error(items: list[Form]) -> None:
    text = print_form(List((Symbol("agent-profile"), Keyword("id"), "a", *items)))
    found = outcome(lambda: derive_card(parse_profile(text)))
    if isinstance(found, InvalidDocument):
        assert found.path is not None
    else:
        assert found[0]["agent_id"] == "a"
        dump_json(found[0])
