"""Random trees of zones: names, wildcards, aliases and zone cuts, some with missing proofs. A seed reproduces them."""

from __future__ import annotations

from random import Random

from support.signed_zones import Nsec3, SignedZone, key

_LABELS = ("a", "b", "c", "d", "_x", "e", "zz", "f")
_RECORDS = ('TXT "x"', "A 192.0.2.1", "MX 1 m.test.")
_DENIALS = (None, None, Nsec3(), Nsec3(3, b"ab"), Nsec3(opt_out=True))
_KINDS = ("TXT", "A", "TXT", "SRV", "DS", "DNSKEY", "NS", "SOA")


class RandomZones:
    """`texts` are all signed zones by name; `top` is the trust anchor."""

    def __init__(self, seed: int, *, damaged: bool) -> None:
        self._chance = Random(seed)
        self.zones = [zone for number in range(6) for zone in self._family(f"z{number}")]
        children = "\n".join(zone.delegation() for zone in self.zones if zone.name.count(".") == 2)
        top = SignedZone(
            "test.", f"ns A 127.0.0.1\n{children}\n", [key(13, "random")], nsec3=self._chance.choice(_DENIALS)
        )
        self.anchors = [f"test. IN DS {top.ds_lines()[0]}"]
        self.texts = {zone.name: self._text(zone, damaged) for zone in self.zones} | {top.name: top.text()}

    def questions(self, count: int) -> list[tuple[str, str]]:
        return sorted({self._question() for _ in range(count)})

    def _question(self) -> tuple[str, str]:
        zone = self._chance.choice(self.zones).name.rstrip(".")
        here = self._name(3).replace("*", "q")
        below = self._chance.choice([here, here, "al1", "al2", "q.dn", "a.dn", "q.cw", "mid"])
        return self._chance.choice([zone, *[f"{below}.{zone}"] * 6]), self._chance.choice(_KINDS)

    def _family(self, name: str) -> list[SignedZone]:
        zone, children = self._zone(f"{name}.test."), []
        for number in range(self._chance.randint(0, 2)):
            between = self._chance.choice(["", "", "mid."])
            children.append(self._zone(f"k{number}.{between}{name}.test."))
            zone.body += children[-1].delegation() + "\n"
        return [zone, *children]

    def _zone(self, name: str) -> SignedZone:
        signed = self._chance.random() < 0.75
        lines = {f"{self._name(3)} {self._chance.choice(_RECORDS)}" for _ in range(self._chance.randint(3, 10))}
        lines |= {f"al{number} CNAME {self._name(2)}" for number in range(self._chance.randint(0, 3))}
        lines |= {line for line in ("dn DNAME z0.test.", "*.cw CNAME a") if self._chance.random() < 0.3}
        denial = self._chance.choice(_DENIALS)
        keys = [key(13, name)] if signed else []
        return SignedZone(name, "\n".join(sorted(lines)) + "\n", keys, nsec3=denial if signed else None)

    def _name(self, depth: int) -> str:
        first = "*" if self._chance.random() < 0.2 else self._chance.choice(_LABELS)
        return ".".join([first, *(self._chance.choice(_LABELS) for _ in range(self._chance.randint(0, depth - 1)))])

    def _text(self, zone: SignedZone, damaged: bool) -> str:
        """Remove up to four signatures and proofs, if the tree is to be damaged."""
        lines = zone.text().splitlines()
        for _ in range(self._chance.randint(1, 4) if damaged and zone.keys else 0):
            proofs = [line for line in lines if (" NSEC" in line or " RRSIG " in line) and "SOA" not in line]
            lines.remove(self._chance.choice([line for line in proofs if "DNSKEY" not in line]))
        return "\n".join(lines) + "\n"
