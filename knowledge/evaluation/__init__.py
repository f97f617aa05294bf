"""How well search finds: measures, the shipped set of questions, and users' own."""
