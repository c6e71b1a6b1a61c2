"""What runs on Java: finding one that can, and fetching jars. For the embedded broker and for Spark."""
