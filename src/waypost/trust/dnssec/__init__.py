"""DNSSEC validation of one RRset, one delegation or one denial at a time. `net/dns/chain.py` walks from zone to
zone."""
