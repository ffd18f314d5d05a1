"""What came in a form, and did a page of ours send it?"""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.datastructures import UploadFile
from starlette.requests import Request

OWN_FIELDS = ("csrf", "once", "who")
MAX_FILES, MAX_FIELDS = 5, 500


class CsrfFailed(Exception):
    """A write that no page of ours sent, or one from before the last sign-in did."""


class Form(NamedTuple):
    """Texts without NUL, which no database can hold, and files, by the fields' names."""

    texts: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}

    @property
    def filled_in(self) -> dict[str, str]:
        """What the user filled in; the rest is ours."""
        return {
            name: text for name, text in self.texts.items() if name not in OWN_FIELDS and not name.startswith("sure_")
        }


async def read(request: Request) -> Form:
    """An empty form for a GET. Raises TooLarge, HTTPException for a body that is no form."""
    if request.method != "POST":
        return Form()
    async with request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as fields:
        texts = {name: value.replace("\0", "") for name, value in fields.items() if isinstance(value, str)}
        files = {name: await value.read() for name, value in fields.items() if isinstance(value, UploadFile)}
    return Form(texts, files)
