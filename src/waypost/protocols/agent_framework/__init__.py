"""TODO-PACKAGE waypost.protocols.agent_framework"""
