"""Models, path spaces, scenarios and training recipes, as YAML read into typed objects."""
