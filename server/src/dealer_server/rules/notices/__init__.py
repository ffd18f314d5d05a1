"""Whom does the service tell of what, beside webhooks?"""
