"""The HTTP API of a watcher: its routes, models and OpenAPI document."""
