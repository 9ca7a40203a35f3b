"""Carriers of the announce protocol: shells around the pure code of `wire` and `trust`. Each fulfils `port.Transport`."""
