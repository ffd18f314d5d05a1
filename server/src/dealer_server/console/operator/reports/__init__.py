"""Reports over all dealers, and the monthly statements of each."""
