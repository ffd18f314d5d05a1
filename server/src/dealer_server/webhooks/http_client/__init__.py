"""How is a request posted over HTTP/1.1? target → pool → connector (resolver) → connection.

Nothing here knows webhooks; what each failure means for an attempt stands in `outbound.py`.
"""
