"""The subcommands of `obliq` that work with models, one module each, loaded when called."""
