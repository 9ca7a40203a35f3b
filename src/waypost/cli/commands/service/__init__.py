"""TODO-PACKAGE waypost.cli.commands.service"""
