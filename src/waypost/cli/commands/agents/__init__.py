"""TODO-PACKAGE waypost.cli.commands.agents"""
