"""What several entries say in the same words."""

from __future__ import annotations

UNMASKING = (
    "retrieval by style links texts of one author across topics and venues: it can unmask people who write under "
    "another name"
)
