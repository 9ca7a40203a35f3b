"""TODO-PACKAGE waypost.server.api.adp"""
