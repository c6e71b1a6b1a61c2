// Every server of a small Kubernetes in one binary: what they share is compiled and linked once.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		fail("say which server to run")
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := server(name)
	if command == nil {
		fail("there is no server " + name)
	}
	os.Exit(cli.Run(command))
}

func server(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return manager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	}
	return nil
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message+": etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubelet")
	os.Exit(2)
}
