"""Price lists: made, changed, assigned to dealers, shown, and taken from and into files."""
