"""TODO-PACKAGE waypost.protocols.adp.agp"""
