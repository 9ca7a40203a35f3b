"""TODO-PACKAGE waypost.cli.commands.trust"""
