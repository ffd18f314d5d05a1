"""The documentation as a site: pages, their Markdown, search, the API reference with signed calls. Below /docs."""
