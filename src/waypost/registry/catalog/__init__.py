"""TODO-PACKAGE waypost.registry.catalog"""
