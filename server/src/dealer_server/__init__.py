"""The service behind the eSIM Dealer Open API v1."""
