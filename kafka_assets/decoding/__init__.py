"""Bytes from a topic -> typed columns, one module a format; where bytes come from is `sources`."""
