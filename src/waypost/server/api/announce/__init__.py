"""TODO-PACKAGE waypost.server.api.announce"""
