"""What can be done: one transaction each, load, decide, store."""
