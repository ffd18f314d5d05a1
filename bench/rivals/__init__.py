"""The same posts, sent by other queues. These programs run in bench/.venv and import nothing of ours but each other.

    python -m bench.rivals.with_NAME load DSN POSTS        # makes the queue's tables, puts all posts into it
    python -m bench.rivals.with_NAME work DSN GO SETTING…  # says `ready:`, waits for the file GO, then drains for ever

POSTS holds one JSON object a line: `lock` (the order's number), `head` (JSON of URL and headers) and `body`. `load` is
not measured. What is tuned is named in each program; the values that are tried stand in
bench/cases/webhooks/contest.py, and the best of them on this machine is taken.
"""
