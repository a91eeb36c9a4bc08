"""Reports made of the history: a web page, JUnit XML and CTRF JSON; and the import of such reports."""
