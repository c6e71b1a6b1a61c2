"""Which events satisfy a dependency: argo-events' filters and transforms, compiled once and never raising.

What differs from argo-events is in docs/filters.md.
"""
