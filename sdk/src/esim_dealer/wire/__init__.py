"""The contract of the eSIM Dealer Open API v1, shared by client and server: words, shapes, envelope, signature."""
