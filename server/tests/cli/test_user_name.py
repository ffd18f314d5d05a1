"""Commands run for a user who has a number and no name, as in a container."""

import os
import subprocess
import sys

import pytest

NAMELESS = """
import os
from dealer_server.cli import command
os.setuid({uid})
print(command.user_name())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user's number")
def test_a_user_without_a_name_goes_by_its_number():
    env = {name: text for name, text in os.environ.items() if name not in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    code = NAMELESS.format(uid=54_321)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("uid 54321\n", "")
