"""The engine on a Ray cluster: actors, messages and connections to clusters."""
