"""Where tests run. A place (docker, local) gives a box its body; the session over its channel is the same for all."""
