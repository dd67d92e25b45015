"""A pool of documents into a better order, behind one interface."""
