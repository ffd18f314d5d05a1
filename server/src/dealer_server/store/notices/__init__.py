"""Notices: facts to be told, and their deliveries."""
