"""The page of an eSIM, by mail to its buyer."""
