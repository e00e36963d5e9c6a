pytest_plugins = ["tools.pytest_requirements"]
