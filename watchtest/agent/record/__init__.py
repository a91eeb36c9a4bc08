"""Records what each test touches: functions, files, child processes."""
