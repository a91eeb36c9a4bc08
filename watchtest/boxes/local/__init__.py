"""The embedded box: the same agent as a subprocess on this machine, in a sandbox where there is one."""
