"""Records what each test touches: functions, modules, files, child processes."""
