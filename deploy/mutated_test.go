package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What the tests hold manifests to, they see.
func TestEachFaultInManifestsIsSeen(t *testing.T) {
	text := rendered(t, "kustomize/server")
	policy := func(m *manifests, name string) int {
		for i, p := range m.policies {
			if p.Name == name {
				return i
			}
		}
		t.Fatalf("there is no NetworkPolicy %s", name)
		return -1
	}
	for says, change := range map[string]func(*manifests, *workload){
		"no container has a port named peers":        func(_ *manifests, w *workload) { w.node.Ports = w.node.Ports[1:] },
		"it listens on 8082, which is not declared":  func(_ *manifests, w *workload) { w.node.Ports = w.node.Ports[:4] },
		"port health is 9000, where nothing listens": func(_ *manifests, w *workload) { w.node.Ports[4].ContainerPort = 9000 },
		"they have to be one number":                 func(_ *manifests, w *workload) { w.node.Ports[1].ContainerPort++ },
		"Service weir selects nothing": func(m *manifests, _ *workload) {
			for _, s := range m.services {
				if s.Name == "weir" {
					s.Spec.Selector["app.kubernetes.io/name"] = "other"
				}
			}
		},
		"has no port other/TCP": func(m *manifests, _ *workload) {
			for _, s := range m.services {
				if s.Name == "weir" {
					s.Spec.Ports[0].TargetPort = intstr.FromString("other")
				}
			}
		},
		"does not lead to all nodes": func(m *manifests, _ *workload) {
			for _, s := range m.services {
				s.Spec.PublishNotReadyAddresses = false
			}
		},
		"nodes need TCP and UDP": func(m *manifests, _ *workload) {
			for _, s := range m.services {
				s.Spec.Ports = s.Spec.Ports[:1]
			}
		},
		"which is no Service here":      func(_ *manifests, w *workload) { set(w, "-join=", "-join=others:7946") },
		"-expect is \"5\"":              func(_ *manifests, w *workload) { *w.Spec.Replicas = 3; set(w, "-log_format=", "-expect=5") },
		"and not the pod's address":     func(_ *manifests, w *workload) { set(w, "-advertise=", "-log_level=info") },
		"known only by -bind's":         func(_ *manifests, w *workload) { set(w, "-advertise=", "-advertise=$(POD_IP):7947") },
		"where nothing is mounted":      func(_ *manifests, w *workload) { set(w, "-rules=", "-rules=/rules.yaml") },
		"0 PodDisruptionBudgets":        func(m *manifests, _ *workload) { m.budgets[0].Spec.Selector.MatchLabels[memberLabel] = "other" },
		"2 PodDisruptionBudgets":        func(m *manifests, _ *workload) { m.budgets = append(m.budgets, m.budgets[0]) },
		"other than one node at a time": func(m *manifests, _ *workload) { m.budgets[0].Spec.MaxUnavailable.IntVal = 2 },
		"no NetworkPolicy admits gossip/UDP": func(m *manifests, _ *workload) {
			p := m.policies[policy(m, "weir-peers")]
			p.Spec.Ingress[0].Ports = p.Spec.Ingress[0].Ports[:1]
		},
		"no NetworkPolicy admits peers/TCP": func(m *manifests, _ *workload) {
			m.policies[policy(m, "weir-peers")].Spec.PodSelector.MatchLabels[memberLabel] = "other"
		},
		"admits others than nodes to peers/TCP": func(m *manifests, _ *workload) {
			p := m.policies[policy(m, "weir-server")]
			p.Spec.Ingress[0].Ports = append(p.Spec.Ingress[0].Ports, m.policies[policy(m, "weir-peers")].Spec.Ingress[0].Ports...)
		},
		"admits everybody to admin/TCP": func(m *manifests, _ *workload) { m.policies[policy(m, "weir-server")].Spec.Ingress[1].From = nil },
		"admits everybody to checks/TCP": func(m *manifests, _ *workload) {
			clear(m.policies[policy(m, "weir-server")].Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels)
		},
		"admits 53/TCP, which is not declared": func(m *manifests, _ *workload) {
			p := m.policies[policy(m, "weir-server")]
			p.Spec.Ingress[0].Ports = append(p.Spec.Ingress[0].Ports, p.Spec.Egress[1].Ports[1])
		},
		"admits all ports": func(m *manifests, _ *workload) { m.policies[0].Spec.Ingress[0].Ports = nil },
		"does not let 53/UDP out": func(m *manifests, _ *workload) {
			p := m.policies[policy(m, "weir-server")]
			p.Spec.Egress = p.Spec.Egress[:1]
		},
		"lets everything out":          func(m *manifests, _ *workload) { m.policies[policy(m, "weir-server")].Spec.Egress[0].To = nil },
		"no probe asks /ready":         func(_ *manifests, w *workload) { w.node.ReadinessProbe.HTTPGet.Path = "/healthz" },
		"no probe asks /live":          func(_ *manifests, w *workload) { w.node.LivenessProbe.HTTPGet.Path = "/ready" },
		"which is not declared":        func(_ *manifests, w *workload) { w.node.LivenessProbe.HTTPGet.Port = intstr.FromString("web") },
		"preStop and leaving may take": func(_ *manifests, w *workload) { *w.pod().TerminationGracePeriodSeconds = 20 },
		"does not wait until callers":  func(_ *manifests, w *workload) { w.node.Lifecycle = nil },
		"a limit of CPU":               func(_ *manifests, w *workload) { w.node.Resources.Limits["cpu"] = resource.MustParse("1") },
		"the limit has to be above":    func(_ *manifests, w *workload) { w.node.Resources.Limits["memory"] = resource.MustParse("512Mi") },
		"100000000 counts need 9283 MiB": func(_ *manifests, w *workload) {
			set(w, "-log_format=", "-max_keys=100000000")
			w.node.Env = slices.DeleteFunc(w.node.Env, func(e corev1.EnvVar) bool { return e.Name == "WEIR_MAX_KEYS" })
		},
		"GOMEMLIMIT is not its memory":  func(_ *manifests, w *workload) { w.node.Env = w.node.Env[:4] },
		"its selector is not of its":    func(_ *manifests, w *workload) { w.Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "other" },
		"a rollout takes more than one": func(_ *manifests, w *workload) { w.Spec.Strategy.RollingUpdate.MaxUnavailable.IntVal = 1 },
		"what spreads pods": func(_ *manifests, w *workload) {
			w.pod().TopologySpreadConstraints[0].LabelSelector.MatchLabels["x"] = "y"
		},
		"have a token for Kubernetes": func(_ *manifests, w *workload) { w.pod().AutomountServiceAccountToken = nil },
		"may do more than it has to":  func(_ *manifests, w *workload) { *w.node.SecurityContext.ReadOnlyRootFilesystem = false },
		"may be root":                 func(_ *manifests, w *workload) { w.pod().SecurityContext.RunAsNonRoot = nil },
		"has no seccomp profile":      func(_ *manifests, w *workload) { w.pod().SecurityContext.SeccompProfile = nil },
		"may not read shared":         func(_ *manifests, w *workload) { w.pod().SecurityContext.FSGroup = nil },
		"there is no volume rules":    func(_ *manifests, w *workload) { w.pod().Volumes = w.pod().Volumes[1:] },
		"is mounted by subPath":       func(_ *manifests, w *workload) { w.node.VolumeMounts[0].SubPath = "rules.yaml" },
	} {
		m, err := read(text)
		require.NoError(t, err)
		change(m, m.workloads()[0])
		require.Contains(t, strings.Join(m.problems(), "\n"), says)
	}
}

func TestEachFaultInStatefulSetsIsSeen(t *testing.T) {
	text := rendered(t, "helm/snapshots")
	for says, change := range map[string]func(*manifests, *workload){
		"waits for an operator": func(_ *manifests, w *workload) {
			w.stateful.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		},
		"one node after the other":      func(_ *manifests, w *workload) { w.stateful.Spec.PodManagementPolicy = "" },
		"keeps no snapshots":            func(_ *manifests, w *workload) { set(w, "-snapshots=", "-log_level=info") },
		"cannot be written":             func(_ *manifests, w *workload) { w.node.VolumeMounts[3].ReadOnly = true },
		"may not write":                 func(_ *manifests, w *workload) { w.pod().SecurityContext.FSGroup = nil },
		"is no volume of the pod's":     func(_ *manifests, w *workload) { set(w, "-snapshots=", "-snapshots=/etc/weir/rules") },
		"there is no volume weir-snap":  func(_ *manifests, w *workload) { w.stateful.Spec.VolumeClaimTemplates = nil },
		"20000000 counts need 3814 MiB": func(_ *manifests, w *workload) { set(w, "-max_keys=", "-max_keys=20000000") },
		"of a Deployment are shared": func(m *manifests, w *workload) {
			m.stateful, m.deployments = nil, append(m.deployments, w.Deployment)
		},
	} {
		m, err := read(text)
		require.NoError(t, err)
		change(m, m.workloads()[0])
		require.Contains(t, strings.Join(m.problems(), "\n"), says)
	}
}

func TestEachFaultOfAutoscalersIsSeen(t *testing.T) {
	text := rendered(t, "helm/autoscaling")
	for says, change := range map[string]func(*manifests, *workload){
		"each upgrade resets":                   func(_ *manifests, w *workload) { w.Spec.Replicas = new(int32) },
		"it has no replicas, and no autoscaler": func(m *manifests, _ *workload) { m.autoscalers = nil },
		"-expect is \"2\" with 3 replicas":      func(m *manifests, _ *workload) { *m.autoscalers[0].Spec.MinReplicas = 3 },
		"scales StatefulSet limits-weir":        func(m *manifests, _ *workload) { m.autoscalers[0].Spec.ScaleTargetRef.Kind = "StatefulSet" },
	} {
		m, err := read(text)
		require.NoError(t, err)
		change(m, m.workloads()[0])
		require.Contains(t, strings.Join(m.problems(), "\n"), says)
	}
}

func TestEachFaultWithABucketIsSeen(t *testing.T) {
	text := rendered(t, "helm/bucket")
	for says, change := range map[string]func(*manifests, *workload){
		"does not lead to s3://counts/production": func(m *manifests, _ *workload) {
			out := m.policies[0].Spec.Egress
			m.policies[0].Spec.Egress = out[:len(out)-1]
		},
		"have volumes for them, too": func(m *manifests, w *workload) {
			common := appsv1.StatefulSetSpec{Replicas: w.Spec.Replicas, Selector: w.Spec.Selector, Template: w.Spec.Template}
			m.deployments, m.stateful = nil, append(m.stateful, &appsv1.StatefulSet{ObjectMeta: w.ObjectMeta, Spec: common})
		},
		"there is no volume weir-bucket-ca": func(_ *manifests, w *workload) { w.pod().Volumes = w.pod().Volumes[:3] },
	} {
		m, err := read(text)
		require.NoError(t, err)
		change(m, m.workloads()[0])
		require.Contains(t, strings.Join(m.problems(), "\n"), says)
	}
}

// set puts an argument in the place of the one that begins so.
func set(w *workload, begins, arg string) {
	for i, a := range w.node.Args {
		if strings.HasPrefix(a, begins) {
			w.node.Args[i] = arg
		}
	}
}

func TestFieldsThatKubernetesDoesNotKnowAreRefusedTwice(t *testing.T) {
	text := string(rendered(t, "kustomize/server"))
	for was, is := range map[string]string{
		"maxSurge: 1":       "maxSurges: 1",
		"containerPort:":    "port:",
		"replicas: 3":       `replicas: "3"`,
		"policyTypes:":      "policies:",
		"clusterIP: None":   "clusterIP: [None]",
		"maxUnavailable: 1": "maxUnavailable: [1]",
		"preStop:":          "beforeStop:",
	} {
		changed := strings.Replace(text, was, is, 1)
		require.NotEqual(t, text, changed, was)
		require.NotEmpty(t, conforms(t, []byte(changed)), "kubeconform takes %q", is)
		_, err := read([]byte(changed))
		require.Error(t, err, "the type takes %q", is)
	}
}
