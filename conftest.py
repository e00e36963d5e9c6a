pytest_plugins = ["tools.pytest_requirements", "tools.pytest_budget"]
