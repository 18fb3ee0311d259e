"""The sans-IO cores of the client: values in, values out. The shells one level up do the IO."""
