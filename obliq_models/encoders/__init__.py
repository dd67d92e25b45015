"""Texts into vectors: one encoder for each kind of model, all behind one small interface."""
