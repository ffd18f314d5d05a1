"""Prints the service's OpenAPI document, as `GET /openapi.json` answers it."""

import json

from docs.__main__ import document

if __name__ == "__main__":
    print(json.dumps(document()))
