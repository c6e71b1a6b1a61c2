"""The Sensor manifest: `models` says what it may contain, `loader` reads it from YAML.

This package imports nothing by itself: the actions use its field types, and its models use the actions.
"""
