"""Operations on tables that exist: dead letters, repair, reset. Each is safe to repeat.

What one run of one table does is `streaming`'s; when something happens is `orchestration`'s. The
command line and Dagster jobs both call the functions here.
"""
