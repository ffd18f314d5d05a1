"""What the service can do: a folder per noun, a file per verb, one transaction each (load, decide, store)."""
