"""Scripts of unbound's own tests: our result equals unbound's."""

from __future__ import annotations

from pathlib import Path

import dns.rdatatype
import pytest

from support.dnssec_replay import Script, know_old_algorithms, read_script
from support.shared import require_shared
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

FOLDER = require_shared("vectors/dnssec/unbound-rpl")
# `REPLY RD` without DO: unbound then does not tell that it validated; the script says so in a comment.
SECURE_UNTOLD = {"val_noadwhennodo.rpl"}
LOOP = "chain of aliases"
REASONS = {
    "val_cname_loop1.rpl": LOOP,
    "val_cname_loop2.rpl": LOOP,
    "val_cname_loop3.rpl": LOOP,
    "val_ds_sha2_downgrade.crpl": "no key of sub.example.com. matches",
    "val_global_quota.rpl": "is not signed, though",
    "val_nodata_failsig.rpl": "the signature is invalid",
    "val_nsec3_nods_badsig.rpl": "the signature has expired",
    "val_positive_nosigs.rpl": "nothing proves",
    "val_secds_nosig.rpl": "has no signed keys",
}
know_old_algorithms()


def resolver(script: Script) -> ValidatingResolver:
    anchors = TrustAnchors(parse_anchors("\n".join(script.anchors)) if script.anchors else (), root=False)
    return ValidatingResolver(script, anchors, clock=lambda: script.date, policy=script.rules)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
async def test_a_scripted_conversation_ends_as_it_did_for_unbound(path: Path) -> None:
    script = read_script(path)
    assert script.steps
    for asked, told in script.steps:
        name, kind = asked.question
        found = await resolver(script).lookup(name.to_text(), dns.rdatatype.to_text(kind))
        if told.code == "SERVFAIL":
            assert found.outcome == "failed", (name, found)
            assert found.security == ("indeterminate" if REASONS[path.name] == LOOP else "bogus"), (name, found)
            assert REASONS[path.name] in found.reason
            continue
        expected = "secure" if "AD" in told.flags or path.name in SECURE_UNTOLD else "insecure"
        assert found.security == expected, (name, found.reason)
        assert found.outcome == ("nxdomain" if told.code == "NXDOMAIN" else found.outcome), (name, found)
        assert found.outcome != "failed", (name, found)
