"""Asking language models: one request and response, backends, and what is wrapped around any of them."""
