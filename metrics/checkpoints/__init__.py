"""What lies in the storage, and whether it is what was saved."""
