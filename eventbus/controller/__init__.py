"""Kubernetes: custom resources, and the controller that makes pods of them."""
