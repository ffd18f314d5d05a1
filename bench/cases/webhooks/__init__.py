"""Webhooks that wait, drained by us and by other queues; and what claiming them costs beside a dead receiver."""
