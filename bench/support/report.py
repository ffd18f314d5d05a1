"""How are the results shown and kept? One table of figures, one of targets, one JSON file."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.support.measure import Reading
from bench.support.targets import Verdict, verdicts

RESULTS = Path(__file__).parents[1] / "results"
_OTHERS_DISTURB = 0.1  # cores


class Results:
    """Every reading by its key, in the order in which they first came."""

    def __init__(self) -> None:
        self.titles: dict[str, str] = {}
        self.readings: dict[str, list[Reading]] = {}

    def add(self, key: str, title: str, reading: Reading) -> None:
        self.titles[key] = title
        self.readings.setdefault(key, []).append(reading)

    @classmethod
    def load(cls, file: Path) -> "Results":
        """What an earlier run kept."""
        results = cls()
        for measured in json.loads(file.read_text())["measurements"]:
            for reading in measured["runs"]:
                results.add(measured["key"], measured["title"], reading)
        return results

    def medians(self) -> dict[str, Reading]:
        return {
            key: {name: statistics.median(run[name] for run in runs) for name in runs[0]} | _spread(runs)
            for key, runs in self.readings.items()
        }

    def keep(self, machine: Mapping[str, object], options: Mapping[str, object], part: str, failure: str) -> Path:
        """Writes all of it; gives the file. `part` keeps what is not a whole run apart."""
        medians = self.medians()
        document = {
            "machine": machine,
            "options": options,
            "failure": failure,
            "targets": [verdict._asdict() for verdict in verdicts(medians)],
            "measurements": [
                {
                    "key": key,
                    "title": self.titles[key],
                    "median": _rounded(medians[key]),
                    "runs": [*map(_rounded, runs)],
                }
                for key, runs in self.readings.items()
            ],
        }
        file = place(machine, part, "json")
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return file


def place(machine: Mapping[str, object], part: str, kind: str) -> Path:
    """The file for a result of this machine's facts."""
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{str(machine['at'])[:10]}-{machine['commit']}{part}.{kind}"


def show(results: Results, console: Console) -> None:
    medians = results.medians()
    console.print(_figures(results, medians))
    if found := verdicts(medians):
        console.print(_targets(found))
    disturbed = [key for key, median in medians.items() if median.get("others_cores", 0) > _OTHERS_DISTURB]
    if disturbed:
        console.print(f"[yellow]others kept more than {_OTHERS_DISTURB} cores busy during: {', '.join(disturbed)}")


def line(title: str, reading: Reading) -> str:
    """One reading in words, as it comes in."""
    words = [f"{reading['per_second']:,.0f}/s"] if "per_second" in reading else []
    words += [f"{name.removesuffix('_ms')} {reading[name]:.2f} ms" for name in ("p50_ms", "p99_ms") if name in reading]
    words += [f"{reading[name]:.1f} MB" for name in ("rss_mb",) if name in reading]
    words += [f"{reading['kb']:.2f} KB"] if "kb" in reading else []
    words += [f"{reading['seconds']:.2f} s"] if "seconds" in reading else []
    words += [f"{reading['cores']:.3f} cores"] if "cores" in reading else []
    return f"{title:<62} {'  '.join(words)}"


def _figures(results: Results, medians: Mapping[str, Reading]) -> Table:
    table = Table("measured", title="medians", title_justify="left")
    names = {
        "per_second": "per s",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "server_us": "serve µs",
        "worker_us": "work µs",
        "postgres_us": "PG µs",
        "rss_mb": "RSS MB",
        "pss_mb": "PSS MB",
        "kb": "KB",
        "seconds": "s",
        "cores": "cores",
    }
    for heading in (*names.values(), "spread"):
        table.add_column(heading, justify="right")
    for key, median in medians.items():
        cells = [_number(median.get(name)) for name in names]
        table.add_row(results.titles[key], *cells, f"{median['spread']:.0%}" if "spread" in median else "")
    return table


def _targets(found: Sequence[Verdict]) -> Table:
    table = Table("target", title="targets", title_justify="left")
    for heading in ("bound", "reached", ""):
        table.add_column(heading, justify="right")
    source = ""
    for verdict in found:
        if verdict.source != source:
            source = verdict.source
            table.add_row(f"[italic]{source}" if source else "")
        mark = "[green]✓" if verdict.kept else "[red]✗ missed"
        table.add_row(verdict.text, verdict.bound, f"{verdict.reached:.2f}{verdict.unit}", mark)
    return table


def _spread(runs: Sequence[Reading]) -> Reading:
    """How far the runs lie apart, as a share of their median."""
    values = [run["per_second"] for run in runs if "per_second" in run]
    return {"spread": (max(values) - min(values)) / statistics.median(values)} if len(values) > 1 else {}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rounded(reading: Reading) -> Reading:
    return {name: round(value, 4) for name, value in reading.items()}
