"""rtfs.md §1: the reader."""

import pytest

from support.rtfs import REPORT_PROFILE, WEATHER_PROFILE
from waypost.errors import InvalidDocument
from waypost.protocols.rtfs.agent_profile import parse_profile
from waypost.protocols.rtfs.card_derivation import derive_card
from waypost.protocols.rtfs.sexpr import Keyword, List, Map, Symbol, Vector, parse_form, parse_forms, print_form


@pytest.mark.req("RTFS-1")
def test_every_kind_of_value_is_read() -> None:
    text = '(f [1 -2.5 true false nil "text"] {:key sym} ; the rest is a comment )\n :end)'
    assert parse_form(text) == List(
        (
            Symbol("f"),
            Vector((1, -2.5, True, False, None, "text")),
            Map(((Keyword("key"), Symbol("sym")),)),
            Keyword("end"),
        )
    )


@pytest.mark.req("RTFS-2")
def test_commas_are_blank_and_discards_nest() -> None:
    assert parse_form("{:a 1, #_ #_ :b 2 :c 3,}") == Map(((Keyword("a"), 1), (Keyword("c"), 3)))
    for number in (".5", "1.", "1e5", "5000?"):
        with pytest.raises(InvalidDocument):
            parse_form(number)


@pytest.mark.req("RTFS-3")
def test_tokens_end_at_brackets_and_a_slash_separates_once() -> None:
    assert parse_forms("[:vector :int]? ns/name /") == (
        Vector((Keyword("vector"), Keyword("int"))),
        Symbol("?"),
        Symbol("ns/name"),
        Symbol("/"),
    )
    with pytest.raises(InvalidDocument):
        parse_forms("a/b/c")


@pytest.mark.req("RTFS-4")
def test_surrogate_pairs_are_joined_and_broken_escapes_refused() -> None:
    assert parse_form(r'"\uD83D\uDE00"') == "😀"
    for broken in (r'"\uD83D"', r'"\q"', '"\x07"'):
        with pytest.raises(InvalidDocument):
            parse_form(broken)


@pytest.mark.req("RTFS-5")
@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("(a\n  [b)", 2, 5), ("{:a}", 1, 2), ("{:a 1\n :a 2}", 2, 2), ('\n"x', 2, 1), ("[#_]", 1, 2), ("#{1}", 1, 1)],
)
def test_an_error_names_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_forms(text)
    assert refused.value.details == {"line": line, "column": column}
    assert refused.value.message


@pytest.mark.req("RTFS-5")
def test_lenient_reading_takes_instants_and_uuids_as_strings() -> None:
    assert parse_forms('#inst "2024" #uuid "u"', lenient=True) == ("2024", "u")


@pytest.mark.req("RTFS-6")
def test_the_reader_is_bounded_and_evaluates_nothing() -> None:
    for text in ("[" * 65 + "]" * 65, "1 " * 100_001, "9" * 41, ";" * (2**20 + 1)):
        with pytest.raises(InvalidDocument):
            parse_forms(text)
    with pytest.raises(InvalidDocument, match="not data"):
        derive_card(parse_profile('(agent-profile :id "a" :metadata {:name (str "a" "b")})'))


@pytest.mark.req("RTFS-6")
@pytest.mark.parametrize("text", [WEATHER_PROFILE, REPORT_PROFILE])
def test_a_printed_form_parses_to_the_same_form(text: str) -> None:
    for form in parse_forms(text):
        assert parse_form(print_form(form)) == form
