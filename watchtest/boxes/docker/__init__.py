"""Boxes that are containers of a Docker or podman engine. The only importers of docker-py."""
