"""Retrievers and rerankers for oblique queries, behind the protocols of mteb."""

from obliq_models.zoo import register

__all__ = ["register"]
