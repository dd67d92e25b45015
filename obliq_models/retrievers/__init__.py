"""First-stage retrievers; each module is imported when its model is loaded."""
