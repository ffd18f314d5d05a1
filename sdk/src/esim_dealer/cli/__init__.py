"""`esim-dealer`: the service from a terminal."""
