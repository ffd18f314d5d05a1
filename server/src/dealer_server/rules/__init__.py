"""DECIDE: pure functions over frozen values. No I/O, no clock, no randomness: "now" and ids come in as arguments."""
