"""What a person sees in the Dagster UI, in a real browser."""
