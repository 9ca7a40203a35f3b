"""Outgoing HTTP with an SSRF guard, DNS, and the clock."""
