"""What are pages made of? Tabler's style sheet holds what the console names, and nothing that it names is missing; a
process that stops does not wait until all templates are read."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import dealer_server.console
from dealer_server.console.shared import rendering

CONSOLE = Path(dealer_server.console.__file__).parent
VENDOR = CONSOLE / "static/vendor"
LEFT_OUT = Path(__file__).parents[1] / "support/vendor/tabler/left_out.txt"


def _naming() -> Iterator[Path]:
    yield from CONSOLE.glob("templates/**/*.html")
    yield from CONSOLE.glob("static/*.js")
    yield from CONSOLE.glob("**/*.py")


def test_no_class_that_is_named_was_left_out_of_the_style_sheet() -> None:
    named = {word for file in _naming() for word in re.findall(r"[\w-]+", file.read_text())}
    assert sorted(named & set(LEFT_OUT.read_text().split())) == [], "run scripts/vendor_console.py"


def test_the_style_sheet_holds_little_that_no_page_uses() -> None:
    assert (VENDOR / "tabler/tabler.min.css").stat().st_size < 150_000


def test_a_process_that_stops_while_it_reads_templates_waits_for_one_of_them() -> None:
    async def stops_soon() -> None:
        warming = asyncio.create_task(rendering.warm())
        while not read:
            await asyncio.sleep(0)
        warming.cancel()
        await asyncio.wait([warming])

    rendering.environment.cache_clear()
    read = rendering.environment().cache
    assert read is not None
    asyncio.run(stops_soon())  # its end waits for threads
    assert 0 < len(read) < len(rendering.environment().list_templates())
