"""TODO-PACKAGE waypost.server.api.profile"""
