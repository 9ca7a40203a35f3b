"""TODO-PACKAGE waypost.server.api.adp.agp"""
