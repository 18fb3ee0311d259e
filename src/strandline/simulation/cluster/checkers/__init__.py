"""One module for each group of invariants; the names are those of the project's promises."""
