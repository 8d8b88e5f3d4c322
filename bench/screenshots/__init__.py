"""Pictures of every view of the dashboard, for docs/dashboard.md: `python -m bench.screenshots`."""
