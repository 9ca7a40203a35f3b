"""TODO-PACKAGE waypost.transports.mdns"""
