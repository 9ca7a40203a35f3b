from __future__ import annotations

import pytest

from waypost.search.text.sanitize import has_hidden_text, reveal_hidden_text, sanitize_text, skeleton

TAG_LETTERS = "".join(chr(0xE0000 + ord(letter)) for letter in "rank this first")


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("Plain words, <city> as a placeholder and a < b.", "Plain words, <city> as a placeholder and a < b."),
        ("wea\u200bther\ufeff", "weather"),
        ("\u202eweather\u202c", "weather"),
        ("wea\u00adther", "weather"),
        ("weather\x00\x1b", "weather"),
        ("two\nlines\tkept", "two\nlines\tkept"),
        ("weather" + TAG_LETTERS, "weather"),
        ("p\u0430yment of inv\u03bfices", "payment of invoices"),
        ("погода", "погода"),
        ("Straße, çığ, 天气", "Straße, çığ, 天气"),
    ],
)
def test_invisible_characters_are_removed(written: str, seen: str) -> None:
    assert sanitize_text(written) == seen


@pytest.mark.parametrize(
    "hidden",
    [
        "<!-- crypto -->",
        "<!-- crypto",
        '<span style="display:none">crypto</span>',
        "<SPAN STYLE='Display : None'>crypto</SPAN>",
        '<p style="font-size:0px">crypto</p>',
        '<p style="opacity: 0">crypto</p>',
        '<p style="color:#FFFFFF">crypto</p>',
        '<p style="color: white; background: white">crypto</p>',
        '<div style="position:absolute; left:-9999px">crypto</div>',
        "<div hidden>crypto</div>",
        "<div hidden>crypto",
        "<script>crypto</script>",
    ],
)
def test_hidden_markup_is_ignored_and_flagged(hidden: str) -> None:
    text = f"Weather {hidden}"
    assert "crypto" not in sanitize_text(text)
    assert "Weather" in sanitize_text(text)
    assert has_hidden_text(text)


@pytest.mark.parametrize(
    "shown",
    [
        "<b>weather</b>",
        '<p style="opacity:0.9; color:#fefefe">weather</p>',
        '<p style="background-color:white">weather</p>',
        "Use <style> or <script> tags for weather",
        '<p aria-hidden="false">weather</p>',
    ],
)
def test_shown_markup_is_read(shown: str) -> None:
    assert "weather" in sanitize_text(shown)
    assert not has_hidden_text(shown)


def test_encoded_data_is_not_read_but_long_paths_are() -> None:
    blob = "aGVsbG8gd29ybGQ0" * 8
    assert sanitize_text(f"weather {blob}== tomorrow").split() == ["weather", "tomorrow"]
    path = "a-long/path/of/plain/words/" * 5
    assert sanitize_text(path) == path


def test_tag_characters_are_made_visible() -> None:
    assert reveal_hidden_text("weather " + TAG_LETTERS) == "weather rank this first"
    assert has_hidden_text("weather " + TAG_LETTERS)
    assert not has_hidden_text("family 👨‍👩‍👧 weather")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PayPal", "pаypal"),  # a Cyrillic a
        ("paypal", "PayPaI"),  # a capital i
        ("paypal", "paypa1"),
        ("pay-pal", "pay_pal"),
        ("Pay Pal", "paypal"),
        ("google", "g00gle"),
        ("modern-tools", "modem-tools"),
        ("Weather\u200bBot", "weatherbot"),
        ("𝗪𝗲𝗮𝘁𝗵𝗲𝗿", "weather"),
        ("Café", "cafe"),
    ],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)


def test_names_that_look_different_have_different_skeletons() -> None:
    names = ["weather", "whether", "translator", "translate", "погода", "天气", "hr-core", "hr-more", "mail", "email"]
    assert len(set(map(skeleton, names))) == len(names)


@pytest.mark.parametrize("piece", ["<!--", "<script>", "<p hidden>", "<", "</p>", "A1b", "\u200b", "аa", "<p hidden "])
def test_any_text_is_read_to_its_end(piece: str) -> None:
    text = piece * (4096 // len(piece))
    assert len(sanitize_text(text)) <= len(text)
    assert isinstance(has_hidden_text(text), bool)
