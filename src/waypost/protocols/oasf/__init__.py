"""TODO-PACKAGE waypost.protocols.oasf"""
