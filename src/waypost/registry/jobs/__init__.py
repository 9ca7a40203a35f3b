"""TODO-PACKAGE waypost.registry.jobs"""
