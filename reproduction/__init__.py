"""Tables and figures of four papers, recomputed with the public API; not part of the wheel.

`python -m reproduction PAPER --out DIR` calls the functions that PAPER/tables.py declares with
`@table` (papers.py). Their arguments are in PAPER/scales.toml, their titles and notes in
PAPER/captions.toml, the paper's own numbers in PAPER/paper_*.csv. Long computations are stages
(stages.py): saved, resumable, and shared by tables.
"""
