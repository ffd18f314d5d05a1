"""Is there a circle of imports, between modules or between folders?"""

from collections import defaultdict
from collections.abc import Mapping

import grimp
import pytest


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Which modules each module imports, within the service and the SDK."""
    graph = grimp.build_graph("dealer_server", "esim_dealer", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """What imports itself by way of others; empty where nothing does."""
    left = {name: imported - {name} for name, imported in imports.items()}
    while free := [name for name, imported in left.items() if not imported & left.keys()]:
        for name in free:
            del left[name]
    while top := [name for name in left if not any(name in imported for imported in left.values())]:
        for name in top:
            del left[name]
    return sorted(left)


def between_siblings(imports: Mapping[str, set[str]]) -> dict[str, dict[str, set[str]]]:
    """By folder: which of its modules and folders import which other ones of it."""
    folders: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, imported in imports.items():
        for other in imported:
            mine, theirs = module.split("."), other.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            if depth:
                folders[".".join(mine[:depth])][mine[depth]].add(theirs[depth])
                folders[".".join(mine[:depth])].setdefault(theirs[depth], set())
    return folders


def test_no_modules_import_each_other(imports: dict[str, set[str]]):
    assert circle(imports) == []


def test_no_folders_import_each_other(imports: dict[str, set[str]]):
    circles = {folder: found for folder, siblings in between_siblings(imports).items() if (found := circle(siblings))}
    assert circles == {}


def test_a_circle_is_found():
    imports = {"s.a.x": {"s.b.y"}, "s.b.y": {"s.c"}, "s.c": {"s.a.z"}, "s.a.z": set(), "s.d": {"s.a.x"}}
    assert circle(imports) == []
    assert circle(between_siblings(imports)["s"]) == ["a", "b", "c"]
