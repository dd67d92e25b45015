"""Modules that the tiny twins' repositories carry as remote code: copied from here as text, never imported."""
