"""TODO-PACKAGE waypost.server.api"""
