"""TODO-PACKAGE waypost.trust.tokens"""
