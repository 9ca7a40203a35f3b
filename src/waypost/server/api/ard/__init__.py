"""TODO-PACKAGE waypost.server.api.ard"""
