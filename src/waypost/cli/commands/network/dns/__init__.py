"""TODO-PACKAGE waypost.cli.commands.network.dns"""
