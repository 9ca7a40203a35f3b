"""TODO-PACKAGE waypost.protocols.dns_aid"""
