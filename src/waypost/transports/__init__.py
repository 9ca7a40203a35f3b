"""Carriers of the announce protocol: shells around the pure code of `protocols.announce` and `trust.announce`. Each implements
`port.Transport`."""
