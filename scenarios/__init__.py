"""The suite of scenarios and the command line; composes the other rooms."""
