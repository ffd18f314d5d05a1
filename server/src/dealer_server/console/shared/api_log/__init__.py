"""The log of a dealer's API calls."""
