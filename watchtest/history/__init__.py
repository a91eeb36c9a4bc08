"""What happened to the tests, kept: one SQLite file a repository, written by `store`, asked by one module a question.

path, database, schema, opening    where the file lies; sqlite3; the numbered migrations; sound, or set aside
deeds, record, store               what the loop goes through, told to the file as it comes
compaction, pack, contents         an ended run in a few bytes; words of failures, once
trees, changes, lineage, renames   what changed from run to run; tests whose file was moved
evidence, flaky                    proofs of chance, and what follows from them
retention                          what is let go
queries, timeline                  runs; packs, read
testhistory, comparing, analysing, slowest, trends     the other questions; shape says them as JSON
pagedata, page, exporting, importing                   the report page; JUnit XML and CTRF
"""
