"""Commands that make training data."""
