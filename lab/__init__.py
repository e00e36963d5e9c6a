"""Real servers, and a proxy that misbehaves on demand, for tests and benches. Not part of the wheel."""
