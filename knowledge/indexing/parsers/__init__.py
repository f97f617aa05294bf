"""One module per family of formats; each turns decoded input into Markdown. `knowledge.indexing.parsed` is the door."""
