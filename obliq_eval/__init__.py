"""Evaluation of oblique retrieval: data, tasks, runs, metrics and what the numbers mean.

Importing this package costs next to nothing; every heavy library is imported where it is used.
"""

__version__ = "0.1.0"
