"""What is measured: one module for each group of `--only`, and what a group needs of its own."""
