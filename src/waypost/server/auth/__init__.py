"""TODO-PACKAGE waypost.server.auth"""
