"""The command line: one module per command, each with `configure(parser)`; see `cli.commands` for how one is chosen."""
