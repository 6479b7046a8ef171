package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// object is an object of Kubernetes with the fields that the tests read. The tests with
// the tag render check objects against the schemas of Kubernetes.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		Replicas                 *int
		MinReplicas, MaxReplicas int
		Template                 template
		ClusterIP                string
		PublishNotReadyAddresses bool
		Ports                    []struct {
			Name, Protocol string
			Port           int
		}
		Selector    map[string]any // labels; in matchLabels if Kubernetes has a LabelSelector
		PodSelector labelSelector
		Ingress     []struct {
			Ports []struct {
				Port     any // a number or a name
				Protocol string
			}
		}
	}
}

type labelSelector struct{ MatchLabels map[string]string }

type template struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     struct {
		TerminationGracePeriodSeconds int
		InitContainers, Containers    []*container
		Volumes                       []struct{ ConfigMap struct{ Name string } }
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   *struct {
			FieldRef         struct{ FieldPath string }
			ResourceFieldRef struct{ Resource string }
		}
	}
	Ports []struct {
		Name, Protocol string
		ContainerPort  int
	}
	Resources struct{ Requests struct{ Memory string } }
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	ReadinessProbe, LivenessProbe struct{ HTTPGet struct{ Port, Path string } }
}

// manifests contains the objects of an installation.
type manifests []*object

func read(text []byte) (m manifests, err error) {
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o := new(object)
		if err := yaml.Unmarshal(part, o); err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, part)
		}
		if o.Kind != "" {
			m = append(m, o)
		}
	}
	return m, nil
}

// ofKind returns the objects of a kind.
func (m manifests) ofKind(kind string) (found []*object) {
	for _, o := range m {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	return found
}

// selects reports whether the selector is not empty, and the labels contain the whole
// selector.
func selects[V any](selector map[string]V, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != fmt.Sprint(value) {
			return false
		}
	}
	return len(selector) > 0
}

// workload is a Deployment or a StatefulSet, with the container of the node in its pods.
type workload struct {
	*object
	node    *container
	options map[string]string // flags of the node, keyed by name
}

// workload returns the workload of the installation.
func (m manifests) workload(t *testing.T) *workload {
	t.Helper()
	found := append(m.ofKind("Deployment"), m.ofKind("StatefulSet")...)
	require.Len(t, found, 1)
	w := &workload{object: found[0]}
	for _, c := range w.containers() {
		for _, p := range c.Ports {
			if p.Name == "peers" {
				w.node, w.options = c, optionsOf(c)
			}
		}
	}
	require.NotNil(t, w.node, "no container has a port named peers")
	return w
}

func (w *workload) containers() []*container {
	return slices.Concat(w.Spec.Template.Spec.InitContainers, w.Spec.Template.Spec.Containers)
}

// ports returns the port numbers of the containers. The keys have the form "name/protocol".
func (w *workload) ports() map[string]int {
	all := make(map[string]int)
	for _, c := range w.containers() {
		for _, p := range c.Ports {
			all[p.Name+"/"+p.Protocol] = p.ContainerPort
		}
	}
	return all
}

// optionsOf returns the flags of a container, from its arguments and its environment.
func optionsOf(c *container) map[string]string {
	options := make(map[string]string)
	for _, e := range c.Env {
		if name, ok := strings.CutPrefix(e.Name, "WEIR_"); ok {
			options[strings.ToLower(name)] = e.Value
		}
	}
	for _, arg := range c.Args {
		if name, value, ok := strings.Cut(strings.TrimPrefix(arg, "-"), "="); ok {
			options[name] = value
		}
	}
	return options
}

// preStop returns the longest wait of a container before SIGTERM.
func (w *workload) preStop() (longest time.Duration) {
	for _, c := range w.containers() {
		longest = max(longest, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
	}
	return longest
}

// mebibytes parses an amount of memory, such as 640Mi or 10Gi.
func mebibytes(t *testing.T, memory string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimRight(memory, "MGi"))
	require.NoError(t, err, memory)
	if strings.HasSuffix(memory, "Gi") {
		n <<= 10
	}
	return n
}

// Nodes cannot reach each other if no NetworkPolicy admits a port, or if the Service of
// -join hides nodes that are not ready. The processes of
// TestContainersRunAsTheirManifests have no such network.
func TestManifestsLetNodesReachEachOther(t *testing.T) {
	for name, m := range allManifests(t) {
		w := m.workload(t)
		admitted := make(map[string]bool)
		for _, p := range m.ofKind("NetworkPolicy") {
			if !selects(p.Spec.PodSelector.MatchLabels, w.Spec.Template.Metadata.Labels) {
				continue
			}
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					admitted[fmt.Sprint(port.Port)+"/"+port.Protocol] = true
				}
			}
		}
		ports := w.ports()
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			_, protocol, _ := strings.Cut(port, "/")
			require.True(t, admitted[port] || admitted[fmt.Sprint(ports[port])+"/"+protocol], "%s: no NetworkPolicy admits %s", name, port)
		}

		host, port, _ := strings.Cut(w.options["join"], ":")
		services := m.ofKind("Service")
		i := slices.IndexFunc(services, func(s *object) bool { return s.Metadata.Name == host })
		require.GreaterOrEqual(t, i, 0, "%s: -join is %q, which is no Service here", name, w.options["join"])
		peers := services[i].Spec
		require.True(t, peers.ClusterIP == "None" && peers.PublishNotReadyAddresses && selects(peers.Selector, w.Spec.Template.Metadata.Labels),
			"%s: %s does not lead to all nodes", name, host)
		var has []string
		for _, p := range peers.Ports {
			if fmt.Sprint(p.Port) == port {
				has = append(has, p.Protocol)
			}
		}
		require.ElementsMatch(t, []string{"TCP", "UDP"}, has, "%s: %s at %s", name, host, port)
	}
}

// keyBytes and baseMebibytes are the memory for a node in docs/deploy.md.
const (
	keyBytes      = 96
	baseMebibytes = 128
)

// If there are fewer nodes than -expect, they use only a share of each limit. If a node
// has less memory than its counts need, the kernel kills it.
func TestOptionsMatchReplicasAndMemory(t *testing.T) {
	for name, m := range allManifests(t) {
		w := m.workload(t)
		least := w.Spec.Replicas
		for _, a := range m.ofKind("HorizontalPodAutoscaler") {
			require.Nil(t, w.Spec.Replicas, "%s: each upgrade would reset the autoscaler", name)
			least = &a.Spec.MinReplicas
		}
		require.NotNil(t, least, name)
		require.Equal(t, strconv.Itoa(*least), w.options["expect"], name)

		memory := w.node.Resources.Requests.Memory
		keys := 5_000_000 // the default of -max_keys
		if text := w.options["max_keys"]; text != "" {
			var err error
			keys, err = strconv.Atoi(text)
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, mebibytes(t, memory), keys*keyBytes>>20+baseMebibytes, "%s: %s for %d counts", name, memory, keys)
	}
}
