"""Log compaction: which part of a log can be cleaned, and the cleaner."""
