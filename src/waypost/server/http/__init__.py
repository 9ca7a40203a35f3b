"""TODO-PACKAGE waypost.server.http"""
