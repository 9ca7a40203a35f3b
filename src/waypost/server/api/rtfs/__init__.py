"""TODO-PACKAGE waypost.server.api.rtfs"""
