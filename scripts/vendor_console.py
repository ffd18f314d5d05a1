"""Fetches what the console's pages link to, in pinned versions and with its licences: python scripts/vendor_console.py.

Needs npm, once, by whoever changes a version here or uses a class of Tabler that no page had (a test says which); what
it copies is committed, so that nobody else does. Of Tabler's style sheet it keeps what the console's files name.
"""

import csv
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

SERVER = Path(__file__).parents[1] / "server"
CONSOLE = SERVER / "src/dealer_server/console"
VENDOR = CONSOLE / "static/vendor"
TESTS = SERVER / "tests/support/vendor"
ICONS = """
    adjustments alert-circle alert-triangle arrow-back-up arrow-left arrow-right arrow-up-right ban bell building-store
    calendar cash chart-line check chevron-down chevron-left chevron-right circle-check circle-x clock code copy
    credit-card database device-mobile dots-vertical download edit external-link eye eye-off file-import filter flag
    history home inbox info-circle key layout-dashboard link list-search lock logout mail menu-2 minus moon package
    pencil player-pause player-play plus point power printer qrcode receipt receipt-refund refresh search send settings
    shield-check shield-lock shopping-cart device-sim stack-2 sun tag trash truck-delivery upload user user-circle
    users wallet webhook world x
"""

with (SERVER / "src/dealer_server/rules/catalogue/data/countries.csv").open() as _file:
    COUNTRIES = [row["code"] for row in csv.DictReader(_file)]


class Package(NamedTuple):
    """A package of npm, and which of its files go into a folder, under which names."""

    name: str
    version: str
    folder: Path
    files: dict[str, str]


PACKAGES = (
    Package("htmx.org", "4.0.1", VENDOR / "htmx", {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "LICENSE"}),
    Package("@tabler/core", "1.6.1", VENDOR / "tabler", {"dist/css/tabler.min.css": "tabler.min.css"}),
    Package(
        "@fontsource-variable/inter",
        "5.3.0",
        VENDOR / "inter",
        {f"files/inter-{part}-wght-normal.woff2": f"inter-{part}.woff2" for part in ("latin", "latin-ext", "cyrillic")}
        | {"LICENSE": "LICENSE"},
    ),
    Package(
        "@fontsource/ibm-plex-mono",
        "5.3.0",
        VENDOR / "mono",
        {"files/ibm-plex-mono-latin-400-normal.woff2": "ibm-plex-mono-latin.woff2", "LICENSE": "LICENSE"},
    ),
    Package(
        "@tabler/icons",
        "3.51.0",
        VENDOR / "icons",
        {f"icons/outline/{name}.svg": f"{name}.svg" for name in ICONS.split()} | {"LICENSE": "LICENSE"},
    ),
    Package(
        "country-flag-icons",
        "1.6.20",
        VENDOR / "flags",
        {f"3x2/{code}.svg": f"{code}.svg" for code in COUNTRIES} | {"LICENSE": "LICENSE"},
    ),
    Package("axe-core", "4.14.1", TESTS / "axe", {"axe.min.js": "axe.min.js", "LICENSE": "LICENSE"}),
)
PURGE = "purgecss@8.0.0"
NAMING = ("templates/**/*.html", "static/*.js", "**/*.py")  # what names classes
MIT_OF_TABLER = "icons/LICENSE"  # one project, one licence; the package of the style sheet has no file of its own


def fetch(package: Package, into: Path) -> Path:
    """The folder with the package's files."""
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    subprocess.run(command, cwd=into, check=True, stdout=subprocess.DEVNULL)
    [archive] = into.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into / "package"


def copy(package: Package, source: Path) -> None:
    package.folder.mkdir(parents=True)
    for theirs, ours in package.files.items():
        file = package.folder / ours
        if file.suffix in (".svg", ".css", ".js"):
            text = (source / theirs).read_text()
            file.write_text(text if package.folder.name == "flags" else plain(file.suffix, text))
        else:
            shutil.copyfile(source / theirs, file)


def plain(suffix: str, text: str) -> str:
    """Without addresses of source maps, which nobody serves; icons in the letters' size, unseen by screen readers."""
    if suffix == ".svg":
        text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
        text = " ".join(re.sub(r'class="[^"]*"', "", text).split())
        return text.replace("<svg", '<svg class="icon" aria-hidden="true" focusable="false"', 1)
    return re.sub(r"\n?(//|/\*)# sourceMappingURL=\S+( \*/)?\s*$", "\n", text)


def purge(sheet: Path, left_out: Path) -> None:
    """Leaves in the style sheet what the console's files name, and in `left_out` the classes that none of them does."""
    classes = set(re.findall(r"\.(-?[A-Za-z_][\w-]*)", sheet.read_text()))
    naming = [file for pattern in NAMING for file in CONSOLE.glob(pattern)]
    named = {word for file in naming for word in re.findall(r"[\w-]+", file.read_text())}
    left_out.parent.mkdir(parents=True)
    left_out.write_text("\n".join(sorted(classes - named)) + "\n")
    command = ["npx", "--yes", PURGE, "--keyframes", "--css", str(sheet), "--output", str(sheet), "--content"]
    subprocess.run([*command, *map(str, naming)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    shutil.rmtree(VENDOR, ignore_errors=True)
    shutil.rmtree(TESTS, ignore_errors=True)
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            copy(package, fetch(package, Path(folder)))
        print(f"{package.name} {package.version}")
    purge(VENDOR / "tabler/tabler.min.css", TESTS / "tabler/left_out.txt")
    shutil.copyfile(VENDOR / MIT_OF_TABLER, VENDOR / "tabler/LICENSE")
    versions = {package.name: package.version for package in PACKAGES}
    (VENDOR / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


if __name__ == "__main__":
    main()
