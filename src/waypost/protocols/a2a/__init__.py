"""TODO-PACKAGE waypost.protocols.a2a"""
