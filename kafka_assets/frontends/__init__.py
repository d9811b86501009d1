"""Other ways to write the declarations that pipelines are made of.

What is written here ends as the same frozen values as in Python; how they fit together is decided
in `graph`.
"""
