"""TODO-PACKAGE waypost.protocols.ard"""
