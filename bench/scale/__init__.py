"""How the election and the register of workers behave as a fleet grows: `python -m bench.scale`."""
