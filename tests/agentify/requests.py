"""Sixty requests over the tools of three public servers, each with the tool a person would expect.

`tools.json` is what `server-everything`, `server-filesystem` and `server-memory` list of themselves.
"""

import json
from pathlib import Path

from mcpbridge.gateway.discovery import Found, as_actions
from mcpbridge.gateway.specs import ActionSpec, BackendSpec

RECORDED = json.loads((Path(__file__).parent / "tools.json").read_text(encoding="utf-8"))
BACKENDS = {name: BackendSpec(id=name, transport="stdio", command=name) for name in RECORDED}
ACTIONS: list[ActionSpec] = [
    action
    for name, recorded in RECORDED.items()
    for action in as_actions(BACKENDS[name], Found(recorded["tools"], {}, "2025-11-25"))
]

REQUESTS: list[tuple[str, str]] = [
    ("say 'hello there' back to me", "everything.echo"),
    ("repeat this message word for word: 'ping'", "everything.echo"),
    ("add 17 and 25", "everything.get-sum"),
    ("what is 2.5 plus 4?", "everything.get-sum"),
    ("which environment variables does the server see?", "everything.get-env"),
    ("dump the process environment so I can debug the configuration", "everything.get-env"),
    ("show me the MCP logo", "everything.get-tiny-image"),
    ("give me a small picture", "everything.get-tiny-image"),
    ("run something slow that reports its progress", "everything.trigger-long-running-operation"),
    ("start a 20 second operation in 4 steps", "everything.trigger-long-running-operation"),
    ("what is the weather in Chicago as structured data?", "everything.get-structured-content"),
    ("structured content for New York", "everything.get-structured-content"),
    ("compress this file with gzip", "everything.gzip-file-as-resource"),
    ("zip the readme and give me the archive as a resource", "everything.gzip-file-as-resource"),
    ("turn the simulated log messages on", "everything.toggle-simulated-logging"),
    ("stop sending subscription updates", "everything.toggle-subscriber-updates"),
    ("research the history of tea in depth", "everything.simulate-research-query"),
    ("an error message with annotations, please", "everything.get-annotated-message"),
    ("list five links to resources", "everything.get-resource-links"),
    ("give me a reference to text resource 7", "everything.get-resource-reference"),
    ("open /srv/notes/todo.txt and show me what is in it", "filesystem.read_text_file"),
    ("read the first 20 lines of server.log", "filesystem.read_text_file"),
    ("what does README.md say?", "filesystem.read_text_file"),
    ("display the contents of config.yaml", "filesystem.read_text_file"),
    ("load the image logo.png as base64", "filesystem.read_media_file"),
    ("fetch the audio recording interview.mp3", "filesystem.read_media_file"),
    ("compare a.py and b.py: read both of them", "filesystem.read_multiple_files"),
    ("get the contents of these three files at once", "filesystem.read_multiple_files"),
    ("save this text as notes.md", "filesystem.write_file"),
    ("create a new file hello.txt with the words hello world", "filesystem.write_file"),
    ("replace foo by bar in main.py", "filesystem.edit_file"),
    ("change one line of settings.py and show me the diff", "filesystem.edit_file"),
    ("make a folder called reports", "filesystem.create_directory"),
    ("mkdir -p build/output", "filesystem.create_directory"),
    ("what files are in /srv/data?", "filesystem.list_directory"),
    ("ls the current folder", "filesystem.list_directory"),
    ("how large are the files in this directory, biggest first?", "filesystem.list_directory_with_sizes"),
    ("list the folder with the size of each file", "filesystem.list_directory_with_sizes"),
    ("show the whole project as a tree", "filesystem.directory_tree"),
    ("recursive structure of the src folder as JSON", "filesystem.directory_tree"),
    ("rename old.txt to new.txt", "filesystem.move_file"),
    ("move the report into the archive directory", "filesystem.move_file"),
    ("find all Python files below src", "filesystem.search_files"),
    ("which files match *.test.ts?", "filesystem.search_files"),
    ("when was main.py last modified?", "filesystem.get_file_info"),
    ("size and permissions of backup.tar", "filesystem.get_file_info"),
    ("which directories may you access?", "filesystem.list_allowed_directories"),
    ("where are you allowed to read and write?", "filesystem.list_allowed_directories"),
    ("remember two new people: Ada and Grace", "memory.create_entities"),
    ("add an entity for the billing service to the knowledge graph", "memory.create_entities"),
    ("note that Ada works for Acme as a relation", "memory.create_relations"),
    ("connect the entity checkout with the entity payments", "memory.create_relations"),
    ("add to what we know about Ada that she likes tea", "memory.add_observations"),
    ("forget the entity Grace with all its relations", "memory.delete_entities"),
    ("remove the observation that the server is slow", "memory.delete_observations"),
    ("Ada no longer works for Acme: delete that relation", "memory.delete_relations"),
    ("show me the whole knowledge graph", "memory.read_graph"),
    ("everything you have stored in memory", "memory.read_graph"),
    ("search the graph for people who like tea", "memory.search_nodes"),
    ("open the nodes named Ada and Acme", "memory.open_nodes"),
]
