"""What pages and notebooks are made of: tables, charts, intervals, lists, prose, disclosure."""
