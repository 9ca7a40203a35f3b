"""TODO-PACKAGE waypost.trust.announce"""
