"""How long does a test wait for an event before it gives up? Only a test that fails waits so long."""

PATIENCE = 180.0  # seconds: enough on a machine that does other things as well
