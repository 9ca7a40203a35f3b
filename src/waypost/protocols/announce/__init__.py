"""TODO-PACKAGE waypost.protocols.announce"""
