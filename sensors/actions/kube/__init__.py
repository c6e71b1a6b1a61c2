"""What the `k8s` and `argoWorkflow` actions share: the cluster, where objects come from, and what becomes of them."""
