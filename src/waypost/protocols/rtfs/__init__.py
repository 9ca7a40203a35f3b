"""TODO-PACKAGE waypost.protocols.rtfs"""
