"""The page at ``/``: runs by severity, an incident in one sentence, its curves, live.

The page is a client of the API like any other: files without data in them, served as they lie.
"""
