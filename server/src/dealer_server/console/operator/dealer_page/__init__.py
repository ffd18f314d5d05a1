"""What the list of dealers and the page of one add up: sales, how long a balance lasts, what waits."""
