"""What is told by notices, and who wants to hear it."""
