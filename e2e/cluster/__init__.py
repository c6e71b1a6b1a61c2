"""A real Kubernetes for the tests: every server of it, with real pods, from the Go module proxy and Debian only.

    with Cluster() as cluster:
        subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"])

Nothing is pulled from an image registry. One binary (`go/`) is etcd, API server, controller manager, scheduler and
kubelet; containerd and runc are those of this machine, or Debian's packages unpacked into the cache. The image that
pods run (`e2e.cluster.image.PROJECT`) is made of this very Python and this very checkout.

**Network.** Servers use the machine's own network, on an address of a bridge that only this cluster has; pods are
connected to that bridge. So whoever runs the tests needs no namespace to enter, replicas do not share ports, and the
address that Kubernetes tells pods about its API is one that answers. There is no proxy and no DNS: Services have no
addresses that anybody answers on, and a broker of this machine has to listen on the bridge (`Network.listener`).

**Processes.** All of it lives in a pid and mount namespace of its own, whose first process ends when whoever made it is
gone, however that came about: so nothing is left running. What is left on the machine are the empty directories
`/run/containerd` and `/var/lib/kubelet`.
"""

from e2e.cluster.cluster import Cluster

__all__ = ["Cluster"]
