"""Other MCP servers behind one door, one policy, one envelope."""
