"""Record batches: their format, compression codecs, and columnar decoding. Knows nothing of logs or requests."""
