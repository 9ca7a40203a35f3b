"""TODO-PACKAGE waypost.protocols.mcp"""
