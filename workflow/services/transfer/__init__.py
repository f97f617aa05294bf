"""Projects taken elsewhere and brought back: one JSON file for all of a project, CSV for its tasks.

`formats` says what the file holds and `checks` what must fit together; `exporting` and `tables` write files;
`project_import` and `task_import` read them, say what would come of them, and bring them in; `writing` makes the rows.
Whatever is brought in is made whole or not at all.
"""
