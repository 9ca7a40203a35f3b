"""TODO-PACKAGE waypost.trust.keys"""
