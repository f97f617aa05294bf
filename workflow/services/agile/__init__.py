"""Planning: epics, stories, issues, sprints and the words a project uses for them."""
