"""TODO-PACKAGE waypost.registry.find"""
