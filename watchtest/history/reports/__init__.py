"""The history as documents: a web page, JUnit XML, JSON and CSV."""
