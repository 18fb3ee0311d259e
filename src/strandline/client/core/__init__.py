"""Sans-IO parts of the client: values in, values out; the shells around them do the IO."""
