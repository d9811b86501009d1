"""The team's own tables: one module a topic or subject; all of them load by themselves.

A module here declares topics and tables and nothing else. Start a new one as a copy of
`tracker_events`; its file name becomes the group of its assets in the Dagster UI.
"""
