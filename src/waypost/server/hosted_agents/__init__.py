"""TODO-PACKAGE waypost.server.hosted_agents"""
