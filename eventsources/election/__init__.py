"""Which of several processes runs an event source that must run once."""
