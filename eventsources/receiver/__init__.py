"""The HTTP server of all sources that are told of events: it says "accepted" only when the brokers have them."""
