"""TODO-PACKAGE waypost.server.api.dns_aid"""
