"""`firstfault doctor`: looks at everything the service depends on, step by step, and names the cure."""
