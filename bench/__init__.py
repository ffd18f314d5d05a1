"""How fast is the service, and against what? `make bench`; bench/README.md explains every row."""
