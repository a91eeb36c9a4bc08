"""Where tests run: a provider (Docker or local) creates the box, and a session over its channel works with it."""
