"""The pages for people who watch and steer: they read through selectors and write through services."""
