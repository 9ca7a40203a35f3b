"""TODO-PACKAGE waypost.search.vectors"""
