"""What pages are made of: charts, numbers, disclosure."""
