"""The engine on a Ray cluster: actors, and connections to clusters."""
