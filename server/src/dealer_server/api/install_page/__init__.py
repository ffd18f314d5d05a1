"""The page that a dealer sends to the buyer of an eSIM: how to install it, its state and usage, and whom to ask."""
