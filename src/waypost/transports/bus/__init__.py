"""TODO-PACKAGE waypost.transports.bus"""
