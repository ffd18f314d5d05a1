"""Does the bench still fit the service? It reads statements of the service and sends them in scripts of its own."""

import subprocess
import sys

from support.paths import ROOT


def test_pgbench_sends_the_statement_that_writes_orders():
    program = "from bench.load import pgbench; print(pgbench.script())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "INSERT INTO orders" in done.stdout
    assert "$" not in done.stdout, "a parameter of the statement has no value in the script"
