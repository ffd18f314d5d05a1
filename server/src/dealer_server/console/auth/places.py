"""Where is the sign-in, and where may it lead?"""

from urllib.parse import urlsplit

PATH, CODE, OUT, HOME = "/console/sign-in", "/console/sign-in/code", "/console/sign-out", "/console"
REACHABLE = "/console/sign-in/reachable"


def local(path: str) -> str:
    """A path of the console, or its first page: no redirect goes to another site."""
    in_console = path == HOME or path.startswith((f"{HOME}/", f"{HOME}?"))
    clean = path.isprintable() and "\\" not in path and not path.startswith(PATH)
    return path if in_console and clean and not urlsplit(path).netloc else HOME
