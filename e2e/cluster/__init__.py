"""A real Kubernetes for the tests: every server of it, with real pods, from the Go module proxy and Debian only.

    with Cluster() as cluster:
        subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"])

Nothing is pulled from an image registry. One binary (`go/`) is etcd, API server, controller manager, scheduler and
kubelet; containerd and runc are those of this machine, or Debian's packages unpacked into the cache. The image that
pods run (`e2e.cluster.image.PROJECT`) is made of this very Python and this very checkout.

**Network.** Servers and pods use the machine's own network, on a loopback address that only this cluster has, such as
127.91.17.1. So whoever runs the tests needs no namespace to enter, pods reach a broker that a test has started on
127.0.0.1, the usual ports are free for every cluster, and the address that Kubernetes tells pods about its API is one
that answers. A network of its own would ask for a proxy, DNS and a broker that listens in it. What it costs: pods say
`hostNetwork: true`, Services have no addresses, and replicas share one machine's ports.

**Processes.** All of it lives in a pid and mount namespace of its own, whose first process ends when whoever made it is
gone, however that came about: so nothing is left running. What is left on the machine are the empty directories
`/run/containerd` and `/var/lib/kubelet`.
"""

from e2e.cluster.cluster import Cluster

__all__ = ["Cluster"]
