"""TODO-PACKAGE waypost.protocols.adp"""
