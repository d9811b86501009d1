"""Figures that anyone can measure again: `make bench`. Ratios, never limits of a test."""
