#!/usr/bin/env python
"""Django's administrative entry point; the product's own command is `devflow`."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    if sys.argv[1:2] == ["runserver"]:
        os.environ.setdefault("DEVFLOW_SERVER", "daphne")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
