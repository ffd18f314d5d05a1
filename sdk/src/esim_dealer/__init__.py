"""Client of the eSIM Dealer Open API v1."""
