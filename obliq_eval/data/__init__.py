"""Where the data comes from: the hub, folders, BEIR, the mirror and the bundled mini sets."""
