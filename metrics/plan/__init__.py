"""The planner: what failures cost a job of a given size, how often to save, what to keep in reserve."""
