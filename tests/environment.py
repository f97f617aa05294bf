"""Loaded before Django's settings: every test process works in a data directory of its own."""

import atexit
import os
import shutil
import tempfile

_home = tempfile.mkdtemp(prefix="devflow-tests-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("DEVFLOW_")]:
    if not _name.startswith("DEVFLOW_TEST_"):
        del os.environ[_name]
os.environ["DEVFLOW_HOME"] = _home
if _database := os.environ.get("DEVFLOW_TEST_DATABASE_URL"):
    os.environ["DEVFLOW_DATABASE_URL"] = _database
