"""Webhooks: the log of all deliveries, how dealers' endpoints answer, and sending many again."""
