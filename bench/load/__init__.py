"""What makes the load, and what receives webhooks."""
