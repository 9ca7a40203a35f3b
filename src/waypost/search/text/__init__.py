"""TODO-PACKAGE waypost.search.text"""
