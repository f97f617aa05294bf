import devflow.cli

raise SystemExit(devflow.cli.main(["mcp"]))
