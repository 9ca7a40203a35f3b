"""TODO-PACKAGE waypost.server.api.mcp"""
