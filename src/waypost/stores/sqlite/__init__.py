"""TODO-PACKAGE waypost.stores.sqlite"""
