"""Does the process of this container live? `serve` and `work` say so on the ports of their metrics."""

import http.client
import sys

for port in (9474, 9464):
    try:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        asked.request("GET", "/livez")
        sys.exit(asked.getresponse().status != 200)
    except OSError:
        continue
sys.exit("neither serve nor work answers")
