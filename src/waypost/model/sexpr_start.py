"""How bytes begin that are S-expressions and no JSON. Knows the first characters alone; reading them is `sexpr_read`'s."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n\f,"  # a comma is white space there (RTFS-2)
# A list, a comment, or what is discarded. A vector or a map could be JSON as well, and is taken for that.
_STARTS = (b"(", b";", b"#")


def is_sexpr_text(content: bytes) -> bool:
    """True when this can be no JSON but a text of RTFS."""
    return content.removeprefix(_BOM).lstrip(_SPACE).startswith(_STARTS)
