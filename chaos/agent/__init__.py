"""The part that rides inside training processes: it records events and fires faults at exact points.

It imports the standard library, ray, torch and its like in ``chaos`` only, and lets no exception of its own reach
the workload.
"""
