"""The scenarios that come with Aftershock, by what they break."""
