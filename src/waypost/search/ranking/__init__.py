"""TODO-PACKAGE waypost.search.ranking"""
