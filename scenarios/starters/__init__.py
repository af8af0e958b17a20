"""Starting points that ``aftershock new`` copies, each with its test; ``starter`` in them becomes the user's name."""
