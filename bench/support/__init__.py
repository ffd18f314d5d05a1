"""What every case needs: the instance, its processes, the measuring and the report."""
