"""The command line: one module per command, each with `configure(parser)`; see `cli.parser` for how one is chosen."""
