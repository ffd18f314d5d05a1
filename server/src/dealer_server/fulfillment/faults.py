"""How is an exception logged?"""

import traceback


def fault_text(error: BaseException) -> str:
    """An exception for the log: its kind and where in our code it arose, but not its message, which may hold a
    secret."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "dealer_server" in frame.filename] or frames
    constraint = getattr(error, "constraint_name", None)
    parts = [type(error).__name__, f"({constraint})" if constraint else ""]
    parts += [f"at {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in ours[-1:]]
    return " ".join(filter(None, parts))
