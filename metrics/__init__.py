"""Watch, judge and tell: every measurement is a pure function of a stored run."""
