"""TODO-PACKAGE waypost.protocols.profile"""
