"""The subcommands of `obliq`, one module each, loaded when called."""
