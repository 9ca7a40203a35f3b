"""A small authoritative server of the DNS for development and tests: it signs its zones, proves what is not there, and takes
updates by TSIG. Loopback is its home; nobody should put a real domain on it."""
