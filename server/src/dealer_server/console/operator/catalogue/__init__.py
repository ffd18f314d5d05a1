"""Packages and price lists: their pages, forms and files."""
