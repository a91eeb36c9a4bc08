"""Changes, git commands, faults and requests in random order, compared at each rest with an independent oracle."""
