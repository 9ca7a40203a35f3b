"""TODO-PACKAGE waypost.server.api.rest"""
