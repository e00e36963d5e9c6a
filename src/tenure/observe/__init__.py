"""What a process sees of a fleet that it takes no part in. Shared by the command and the dashboard."""
