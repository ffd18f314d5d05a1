"""`esim-dealer mcp`: the dealer's account as tools for an agent (Model Context Protocol). Needs the extra `mcp`."""
