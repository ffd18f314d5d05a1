"""The commands of `dealer-server`, a module for each noun."""
