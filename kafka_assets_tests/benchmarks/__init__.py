"""Figures that anyone can measure again: `make bench`. Ratios of one run, never limits of a test."""
