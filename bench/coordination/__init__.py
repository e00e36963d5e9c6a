"""What it costs a fleet to have a leader: store requests and USD, and the time to the first leader."""
