"""TODO-PACKAGE waypost.search.index"""
