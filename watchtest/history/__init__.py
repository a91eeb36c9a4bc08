"""The history of all runs: one SQLite file per repository.

`run_recorder` writes what the loop does through `store`; each module of `queries` answers one question about it, and
`reports` turns it into a web page, JUnit XML or CTRF JSON, and imports such reports.
"""
