"""The heartbeat of one namespace: the service that runs the election, the plugin base class, fencing and locks."""
