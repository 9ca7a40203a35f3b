"""TODO-PACKAGE waypost.server.api.agent_framework"""
