"""Builders of the bundled OBLIQ-Mini sets: one module for each set, one for what they share."""
