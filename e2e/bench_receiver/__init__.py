"""How fast the receiver is, against the same server without a log behind it."""
