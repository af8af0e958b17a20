"""Ways to break something: one small class in one file each, registered there."""
