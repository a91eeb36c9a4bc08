"""What happened to the tests, kept: one SQLite file a repository, written by `store`, asked through `queries`.

path says where the file lies, database is the only module that knows sqlite3, schema holds the numbered migrations,
opening finds a file sound or sets it aside.
"""
