"""Announcements by mDNS and DNS-SD."""
