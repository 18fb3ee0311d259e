"""Record batches: their bytes, their codecs, their columns. Knows nothing of logs, requests or nodes."""
