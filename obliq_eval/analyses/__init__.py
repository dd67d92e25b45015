"""The paper's analyses, one file each."""
