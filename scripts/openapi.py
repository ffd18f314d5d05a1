"""Prints the OpenAPI document, as `GET /openapi.json` answers it, for a service of any host."""

import json

from docs.__main__ import document

ANY_HOST = {
    "url": "https://{host}",
    "variables": {"host": {"default": "api.example.com", "description": "The host of your operator's service."}},
}

if __name__ == "__main__":
    print(json.dumps(document() | {"servers": [ANY_HOST]}))
