"""TODO-PACKAGE waypost.protocols"""
