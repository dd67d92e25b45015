"""A loopback hub and toy repositories, for tests, documentation and demonstrations."""
