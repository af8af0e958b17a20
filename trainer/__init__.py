"""The reference workload: a small decoder trained with Ray Train, FSDP2 and distributed checkpoints.

It is a model Ray Train program first and a test subject second: it knows nothing of the harness that breaks it,
runs alone with ``python -m trainer``, and keeps everything needed for an exact resume inside its checkpoint.
"""
