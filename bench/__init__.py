"""Measurements. They gate no test: absolute times belong to the machine that they were taken on."""
