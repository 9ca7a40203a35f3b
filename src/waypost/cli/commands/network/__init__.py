"""Commands for the LAN, domains and the DNS."""
