Parts = tuple[str, str, str, str, str, str, str, str, str | None, bool, bytes]

def find_parts(frame: str) -> Parts | None: ...
def write_parts(
    message_id: str,
    sender: str,
    to: str,
    kind: str,
    timestamp: str,
    signature: str,
    content: str,
    content_type: str,
    reply_to: str | None,
    more: bool,
) -> str | None: ...
def frame_text(text: str, mask: bytes | None) -> bytes: ...
