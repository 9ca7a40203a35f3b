"""Authoritative DNS server for development and tests: signs its zones and accepts TSIG updates. Not for public use."""
