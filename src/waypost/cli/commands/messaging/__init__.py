"""TODO-PACKAGE waypost.cli.commands.messaging"""
