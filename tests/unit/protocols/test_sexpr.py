"""The S-expression parser and printer."""

import pytest

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.protocols.rtfs.sexpr import (
    LINE_CHARS,
    Context,
    Form,
    Keyword,
    List,
    Map,
    Quote,
    Symbol,
    Vector,
    parse_form,
    parse_forms,
    print_form,
)

K = Keyword
S = Symbol


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("nil", None),
        ("true", True),
        ("false", False),
        ("truely", S("truely")),
        ("0", 0),
        ("-17", -17),
        ("+17", 17),
        ("007", 7),
        ("0.5", 0.5),
        ("-1.25e3", -1250.0),
        ("1.0E-2", 0.01),
        ("+1.0e+2", 100.0),
        ('"a b"', "a b"),
        (r'"\"\\\/\b\f\n\r\t\u00e9"', '"\\/\b\f\n\r\té'),
        (r'"\uD83D\uDE00"', "😀"),
        ('"raw\nline"', "raw\nline"),
        (":a", K("a")),
        (":a/b-c", K("a/b-c")),
        (":error/discovery.timeout", K("error/discovery.timeout")),
        (":*", K("*")),
        (":=>", K("=>")),
        (":string?", K("string?")),
        (':"two words"', K("two words")),
        (":é", K("é")),
        ("a.b:c", S("a.b:c")),
        ("ns/name", S("ns/name")),
        ("/", S("/")),
        ("-", S("-")),
        ("-a", S("-a")),
        ("+", S("+")),
        ("@plan", Context("plan")),
        ("'(a 1)", Quote(List((S("a"), 1)))),
        ("()", List()),
        ("[]", Vector()),
        ("{}", Map()),
        ("[1 2,3,,4]", Vector((1, 2, 3, 4))),
        ("{:a 1, :b [2]}", Map(((K("a"), 1), (K("b"), Vector((2,)))))),
        ('{"a" 1 1 "b"}', Map((("a", 1), (1, "b")))),
        ('{:a 1 "a" 2}', Map(((K("a"), 1), ("a", 2)))),
        ("[1;two\n3]", Vector((1, 3))),
        ("[1;two\r3]", Vector((1, 3))),
        ("[1 #_2 3]", Vector((1, 3))),
        ("[#_ #_ a b c]", Vector((S("c"),))),
        ("{#_:x :a #_(1 2) 1 #_:b}", Map(((K("a"), 1),))),
        ("[[:vector int]? string]", Vector((Vector((K("vector"), S("int"))), S("?"), S("string")))),
        ('["a""b"]', Vector(("a", "b"))),
        ("\ufeff[1]", Vector((1,))),
        ("\f[1]\t", Vector((1,))),
    ],
)
def test_a_form_is_read(text: str, form: Form) -> None:
    assert parse_form(text) == form
    assert parse_form(text.encode()) == form
    assert parse_form(print_form(form)) == form


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("(a", 1, 1, "never closed"),
        ("[1\n (2]", 2, 4, "expected"),
        ("a)", 1, 2, "has no opening bracket"),
        ("{:a}", 1, 2, "no value"),
        ("{:a 1 :b}", 1, 7, "no value"),
        ("{:a 1\n :a 2}", 2, 2, "twice"),
        ("{[1] 2}", 1, 2, "map key"),
        ("{true 2}", 1, 2, "map key"),
        ("{a 2}", 1, 2, "map key"),
        ('"abc', 1, 1, "never closed"),
        (r'"\x"', 1, 2, "not an escape"),
        ('"\\', 1, 2, "not an escape"),
        (r'"\u12"', 1, 2, "four hexadecimal"),
        (r'"\uD83D"', 1, 2, "surrogate"),
        (r'"\uDE00"', 1, 2, "surrogate"),
        (r'"\uD83D\u0041"', 1, 2, "surrogate"),
        ('"a\x01"', 1, 3, "U+0001"),
        ('"\x7f"', 1, 2, "U+007F"),
        ("#_", 1, 1, "no form to discard"),
        ("[1 #_]", 1, 4, "no form to discard"),
        ("#{1}", 1, 1, "not supported"),
        ('#inst "2024-01-01"', 1, 1, "not supported"),
        ("^:a b", 1, 1, "Metadata"),
        ("'", 1, 1, "no form to quote"),
        (".5", 1, 1, "not a symbol"),
        ("1.", 1, 1, "not a number"),
        ("1e5", 1, 1, "not a number"),
        ("5000?", 1, 1, "not a number"),
        ("+1a", 1, 1, "not a number"),
        ("1.0e999", 1, 1, "double"),
        ("1" * 41, 1, 1, "40 digits"),
        (":", 1, 1, "not a keyword"),
        ("::a", 1, 1, "not a keyword"),
        (":2d", 1, 1, "not a keyword"),
        (":a/b/c", 1, 1, "not a keyword"),
        (":/", 1, 1, "not a keyword"),
        ("a/", 1, 1, "not a symbol"),
        ("a'b", 1, 1, "not a symbol"),
        ("a\\b", 1, 1, "not a symbol"),
        ("~a", 1, 1, "not a symbol"),
        ("@", 1, 1, "not a reference"),
        ('{"a": 1}', 1, 5, "not a keyword"),
        ("[1\n\n  \u00b2]", 3, 3, "not a symbol"),
        ("a b", 1, 1, "one form"),
    ],
)
def test_a_syntax_error_is_refused_with_line_and_column(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_form(text)
    assert refused.value.path == f"line {line}, column {column}"
    assert message in refused.value.message


def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_forms(b"[1]\n\xff")
    assert refused.value.path == "line 2, column 1"


def test_half_a_surrogate_in_a_text_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="surrogate"):
        parse_forms('"\ud800"')


def test_the_lenient_reader_takes_json_colons_and_tagged_strings() -> None:
    text = '{"a":1 "b" :c "d":true :at #inst "2024-01-01T00:00:00Z" :id #uuid"x"}'
    assert parse_form(text, lenient=True) == Map(
        (("a", 1), ("b", K("c")), ("d", True), (K("at"), "2024-01-01T00:00:00Z"), (K("id"), "x"))
    )
    with pytest.raises(InvalidDocument, match="#uuid"):
        parse_form("#uuid x", lenient=True)


def test_nesting_is_bounded_for_every_way_to_nest() -> None:
    parse_form("[" * 64 + "]" * 64)
    for text in ("[" * 65 + "]" * 65, "'" * 65 + "a", "#_" * 65 + "a " * 65, "{1 " * 65 + "1" + "}" * 65):
        with pytest.raises(InvalidDocument, match="64"):
            parse_forms(text)


def test_the_number_of_forms_is_bounded() -> None:
    assert len(parse_forms(("1 " * 100_000).ljust(2**20))) == 100_000
    with pytest.raises(InvalidDocument, match="100000 forms") as refused:
        parse_forms(("1 " * 100_001).ljust(2**20))
    assert refused.value.path == "line 1, column 200001"


def test_the_number_of_forms_is_limited_by_the_length_of_the_text() -> None:
    short, length = limits.RTFS_FORMS_SHORT, limits.RTFS_FORM_CHARS
    assert len(parse_forms("a " * short)) == short
    assert len(parse_forms("[a]" * (short // 2))) == short // 2
    longer = short + 100
    assert len(parse_forms(("a " * longer).ljust(longer * length))) == longer
    for text in ("a " * (short + 1), "'a " * (short // 2 + 1), ("a " * (longer + 1)).ljust(longer * length)):
        with pytest.raises(InvalidDocument, match="forms") as refused:
            parse_forms(text)
        assert str(short) in str(refused.value.hint)


def test_the_size_of_a_text_is_bounded() -> None:
    parse_forms(";" + " " * (2**20 - 1))
    with pytest.raises(InvalidDocument, match="1048576"):
        parse_forms(";" + " " * 2**20)


def test_an_integer_of_40_digits_is_read() -> None:
    assert parse_form("9" * 40) == int("9" * 40)


def test_long_forms_are_broken_with_two_spaces_and_keep_their_order() -> None:
    form = List((S("agent-profile"), K("id"), "a", K("metadata"), Map(((K("z"), "x" * 60), (K("a"), "y" * 60)))))
    text = print_form(form)
    assert text == (f'(agent-profile\n  :id "a"\n  :metadata {{\n    :z "{"x" * 60}"\n    :a "{"y" * 60}"}})')
    assert max(map(len, text.splitlines())) <= LINE_CHARS


@pytest.mark.parametrize("form", [float("inf"), float("nan"), S("true"), S("1a"), S("-1"), S("a b"), 10**40, "\ud800"])
def test_forms_without_a_textual_representation_are_refused(form: Form) -> None:
    with pytest.raises(InvalidDocument):
        print_form(form)


@pytest.mark.parametrize("value", [1e16, 1e-7, 1.5e300, -0.0, 5e-324])
def test_floats_are_printed_so_that_they_are_read_again(value: float) -> None:
    assert parse_form(print_form(value)) == value
