"""TODO-PACKAGE waypost.trust.audit"""
