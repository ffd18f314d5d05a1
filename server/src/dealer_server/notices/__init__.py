"""Tells dealers and operators what they should know: mails and signed POSTs (docs/decisions/0035-notices.md)."""
