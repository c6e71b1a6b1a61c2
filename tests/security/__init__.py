"""A broker that lets in only whom it knows, and permits only what it was told to."""
