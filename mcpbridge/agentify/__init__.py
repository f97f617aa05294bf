"""The orchestrator: a task in words becomes one request to one backend (`agentify-api`)."""
