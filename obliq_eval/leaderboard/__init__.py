"""Leaderboards: the reported figures, the submissions, and the pages that are generated from both."""
