"""TODO-PACKAGE waypost.server.web"""
