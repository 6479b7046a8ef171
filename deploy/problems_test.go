package deploy

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const memberLabel = "weir-cluster"

// workload is a Deployment or a StatefulSet, and the container of its pods that is the node.
type workload struct {
	*appsv1.Deployment                     // what a StatefulSet has in common with one
	stateful           *appsv1.StatefulSet // nil: it is a Deployment
	node               *corev1.Container
	options            map[string]string // of the node, by flag
	wrong              []string
}

func (w *workload) problem(format string, args ...any) {
	w.wrong = append(w.wrong, w.Name+": "+fmt.Sprintf(format, args...))
}

func (w *workload) pod() *corev1.PodSpec { return &w.Spec.Template.Spec }

func (w *workload) containers() []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{w.pod().InitContainers, w.pod().Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// ports are those that the pods declare, as "name/protocol".
func (w *workload) ports() map[string]int32 {
	all := make(map[string]int32)
	for _, c := range w.containers() {
		for _, p := range c.Ports {
			all[p.Name+"/"+string(p.Protocol)] = p.ContainerPort
		}
	}
	return all
}

func (w *workload) selectedBy(s *metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && s != nil && !selector.Empty() && selector.Matches(labels.Set(w.Spec.Template.Labels))
}

// optionsOf are the flags of a container, those of the environment too.
func optionsOf(c *corev1.Container) map[string]string {
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

func (m *manifests) workloads() (all []*workload) {
	for _, d := range m.deployments {
		all = append(all, &workload{Deployment: d})
	}
	for _, s := range m.stateful {
		common := appsv1.DeploymentSpec{Replicas: s.Spec.Replicas, Selector: s.Spec.Selector, Template: s.Spec.Template}
		all = append(all, &workload{Deployment: &appsv1.Deployment{ObjectMeta: s.ObjectMeta, Spec: common}, stateful: s})
	}
	for _, w := range all {
		for _, c := range w.containers() {
			if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "peers" }) {
				w.node, w.options = c, optionsOf(c)
			}
		}
	}
	return all
}

// problems are what would keep the objects from working together, though each for itself is
// what Kubernetes takes.
func (m *manifests) problems() (wrong []string) {
	all := m.workloads()
	if len(all) == 0 {
		return []string{"there is no Deployment and no StatefulSet"}
	}
	for _, w := range all {
		m.checkReplicas(w)
		if w.node == nil {
			w.problem("no container has a port named peers")
		} else {
			w.checkNode()
			w.checkEnd()
			w.checkMemory()
			w.checkSnapshots()
			m.checkPeers(w)
		}
		w.checkRollout()
		w.checkConfinement()
		w.checkMounts()
		m.checkBudget(w)
		m.checkPolicies(w)
		wrong = append(wrong, w.wrong...)
	}
	for _, s := range m.services {
		wrong = append(wrong, serviceProblems(s, all)...)
	}
	return wrong
}

// checkReplicas wants one owner of the number of replicas, the manifest or an autoscaler, and
// of -expect that it is the least of that number: fewer nodes spend only a share.
func (m *manifests) checkReplicas(w *workload) {
	least := w.Spec.Replicas
	for _, a := range m.autoscalers {
		kind := "Deployment"
		if w.stateful != nil {
			kind = "StatefulSet"
		}
		if to := a.Spec.ScaleTargetRef; to.APIVersion != "apps/v1" || to.Kind != kind || to.Name != w.Name {
			w.problem("HorizontalPodAutoscaler %s scales %s %s", a.Name, to.Kind, to.Name)
			continue
		}
		if w.Spec.Replicas != nil {
			w.problem("it has replicas, and each upgrade resets HorizontalPodAutoscaler %s to them", a.Name)
		}
		least = a.Spec.MinReplicas
	}
	switch {
	case least == nil:
		w.problem("it has no replicas, and no autoscaler")
	case w.node != nil && w.options["expect"] != strconv.Itoa(int(*least)):
		w.problem("-expect is %q with %d replicas", w.options["expect"], *least)
	}
}

// checkNode holds what is listened on to what is declared, and the probes to what is there.
func (w *workload) checkNode() {
	listens := make(map[int32]bool)
	for _, name := range []string{"bind", "checks", "admin", "health", "envoy", "listen"} {
		host, text, err := net.SplitHostPort(w.options[name])
		if err != nil || host != "" { // off, or of the pod alone
			continue
		}
		port, _ := strconv.Atoi(text)
		listens[int32(port)] = true
	}
	for _, p := range w.node.Ports {
		if !listens[p.ContainerPort] {
			w.problem("port %s is %d, where nothing listens", p.Name, p.ContainerPort)
		}
	}
	for port := range listens {
		if !slices.ContainsFunc(w.node.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
			w.problem("it listens on %d, which is not declared", port)
		}
	}
	if ports := w.ports(); ports["peers/TCP"] != ports["gossip/UDP"] {
		w.problem("peers is TCP %d, and gossip UDP %d: they have to be one number", ports["peers/TCP"], ports["gossip/UDP"])
	}
	for name, p := range map[string]*corev1.Probe{"/ready": w.node.ReadinessProbe, "/live": w.node.LivenessProbe, "/live at first": w.node.StartupProbe} {
		path, _, _ := strings.Cut(name, " ")
		switch {
		case p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path:
			w.problem("no probe asks %s", name)
		case !slices.ContainsFunc(w.node.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.HTTPGet.Port.String() }):
			w.problem("the probe of %s is at port %s, which is not declared", name, &p.HTTPGet.Port)
		}
	}
	switch host, port, _ := strings.Cut(w.options["advertise"], ":"); {
	case host != "$(POD_IP)":
		w.problem("-advertise is %q and not the pod's address", w.options["advertise"])
	case !strings.HasSuffix(w.options["bind"], ":"+port): // an IPv6 address has no brackets there
		w.problem("-advertise is %q and -bind %q: the port of a pod's IPv6 address is known only by -bind's", w.options["advertise"], w.options["bind"])
	}
}

// leaveWithin is how long the node may take to leave: -leave_within, or its default, which
// is the gateway's as well.
func (w *workload) leaveWithin() time.Duration {
	if d, err := time.ParseDuration(w.options["leave_within"]); err == nil {
		return d
	}
	return 15 * time.Second
}

// preStop is the longest that any container waits before SIGTERM.
func (w *workload) preStop() (longest time.Duration) {
	for _, c := range w.containers() {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			longest = max(longest, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	return longest
}

func (w *workload) checkEnd() {
	grace := time.Duration(*w.pod().TerminationGracePeriodSeconds) * time.Second
	if least := w.preStop() + w.leaveWithin() + 5*time.Second; grace < least {
		w.problem("terminationGracePeriodSeconds is %v: preStop and leaving may take %v", grace, least)
	}
	for i := range w.pod().Containers {
		c := &w.pod().Containers[i]
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
			w.problem("container %s does not wait until callers know that it goes", c.Name)
		}
	}
	for i := range w.pod().InitContainers {
		c := &w.pod().InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			w.problem("init container %s has to end before the service begins", c.Name)
		}
	}
}

// What docs/deploy.md gives a node, and how many counts it holds unless told.
const (
	keyBytes       = 96
	baseBytes      = 128 << 20
	defaultMaxKeys = 5_000_000
)

func (w *workload) checkMemory() {
	r := w.node.Resources
	if _, limited := r.Limits[corev1.ResourceCPU]; limited {
		w.problem("a limit of CPU stops the node for most of each 100 ms")
	}
	request, limit := r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory]
	if request.IsZero() || limit.Cmp(request) <= 0 {
		w.problem("its memory is %v, with a limit of %v: the limit has to be above", &request, &limit)
	}
	counts, err := strconv.ParseInt(w.options["max_keys"], 10, 64)
	if err != nil {
		counts = defaultMaxKeys
	}
	if need := counts*keyBytes + baseBytes; request.Value() < need {
		w.problem("its memory is %v: %d counts need %d MiB", &request, counts, need>>20)
	}
	if !slices.ContainsFunc(w.node.Env, func(e corev1.EnvVar) bool {
		return e.Name == "GOMEMLIMIT" && e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil && e.ValueFrom.ResourceFieldRef.Resource == "requests.memory"
	}) {
		w.problem("GOMEMLIMIT is not its memory")
	}
}

func (w *workload) checkRollout() {
	if !w.selectedBy(w.Spec.Selector) {
		w.problem("its selector is not of its own pods")
	}
	if s := w.stateful; s != nil {
		if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			w.problem("a rollout waits for an operator, or a start of all for one node after the other")
		}
	} else if r := w.Spec.Strategy.RollingUpdate; r == nil || *r.MaxSurge != intstr.FromInt32(1) || *r.MaxUnavailable != intstr.FromInt32(0) {
		w.problem("a rollout takes more than one node at a time, or one before the next is ready")
	}
	for _, s := range w.pod().TopologySpreadConstraints {
		if !w.selectedBy(s.LabelSelector) {
			w.problem("what spreads pods over %s is not of them", s.TopologyKey)
		}
	}
}

func (w *workload) checkConfinement() {
	pod := w.pod().SecurityContext
	if w.pod().AutomountServiceAccountToken == nil || *w.pod().AutomountServiceAccountToken {
		w.problem("its pods have a token for Kubernetes, which asks for nothing")
	}
	for _, c := range w.containers() {
		s := c.SecurityContext
		is := func(b *bool) bool { return b != nil && *b }
		switch {
		case s == nil || !is(s.ReadOnlyRootFilesystem) || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL"):
			w.problem("container %s may do more than it has to", c.Name)
		case !is(s.RunAsNonRoot) && (pod == nil || !is(pod.RunAsNonRoot)):
			w.problem("container %s may be root", c.Name)
		case s.SeccompProfile == nil && (pod == nil || pod.SeccompProfile == nil):
			w.problem("container %s has no seccomp profile", c.Name)
		}
	}
	for _, v := range w.pod().Volumes {
		if v.Secret != nil && (pod == nil || pod.FSGroup == nil) && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode&0o004 == 0) {
			w.problem("the node may not read %s: it is no group's of its own, and not for others", v.Name)
		}
	}
}

// snapshotBytes is what the values of the chart give three snapshots of a count.
const snapshotBytes = 200

// checkSnapshots wants of -snapshots that it is a bucket, or that each pod has a volume of its
// own there, which outlives it and has room.
func (w *workload) checkSnapshots() {
	at := w.options["snapshots"]
	if at == "" && w.stateful != nil && w.node.Args[0] == "serve" {
		w.problem("it is a StatefulSet, and keeps no snapshots")
	}
	if at == "" {
		return
	}
	if strings.HasPrefix(at, "s3://") {
		if w.stateful != nil {
			w.problem("-snapshots is %s, and the pods have volumes for them, too", at)
		}
		return
	}
	if w.stateful == nil {
		w.problem("-snapshots is %s: the volumes of a Deployment are shared, or end with their pods", at)
		return
	}
	for _, v := range w.node.VolumeMounts {
		for _, c := range w.stateful.Spec.VolumeClaimTemplates {
			if v.MountPath != at || v.Name != c.Name {
				continue
			}
			if v.ReadOnly {
				w.problem("-snapshots is %s, which cannot be written", at)
			}
			if w.pod().SecurityContext.FSGroup == nil {
				w.problem("-snapshots is %s, where the node may not write: the volume is no group's of its own", at)
			}
			counts, _ := strconv.ParseInt(w.options["max_keys"], 10, 64)
			if room := c.Spec.Resources.Requests[corev1.ResourceStorage]; room.Value() < counts*snapshotBytes {
				w.problem("the volume of -snapshots has %v: snapshots of %d counts need %d MiB", &room, counts, counts*snapshotBytes>>20)
			}
			return
		}
	}
	w.problem("-snapshots is %s, which is no volume of the pod's own", at)
}

// checkMounts holds mounts to volumes, and files that are named to mounts.
func (w *workload) checkMounts() {
	var volumes []string
	for _, v := range w.pod().Volumes {
		volumes = append(volumes, v.Name)
	}
	if w.stateful != nil {
		for _, c := range w.stateful.Spec.VolumeClaimTemplates {
			volumes = append(volumes, c.Name)
		}
	}
	for _, c := range w.containers() {
		for _, v := range c.VolumeMounts {
			if !slices.Contains(volumes, v.Name) {
				w.problem("there is no volume %s", v.Name)
			}
			if v.SubPath != "" {
				w.problem("%s is mounted by subPath, and never changes", v.Name)
			}
		}
		for name, value := range optionsOf(c) {
			if strings.HasPrefix(value, "/") && !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return strings.HasPrefix(value+"/", v.MountPath+"/") }) {
				w.problem("-%s is %s, where nothing is mounted", name, value)
			}
		}
	}
}

// checkPeers wants of -join that it leads to all nodes, before they are ready.
func (m *manifests) checkPeers(w *workload) {
	host, port, _ := net.SplitHostPort(w.options["join"])
	for _, s := range m.services {
		if s.Name != host {
			continue
		}
		selector := labels.SelectorFromSet(s.Spec.Selector)
		if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || selector.Empty() || !selector.Matches(labels.Set(w.Spec.Template.Labels)) {
			w.problem("%s does not lead to all nodes: it has to be headless, publish what is not ready, and select them", host)
		}
		var has []string
		for _, p := range s.Spec.Ports {
			if strconv.Itoa(int(p.Port)) == port {
				has = append(has, string(p.Protocol))
			}
		}
		if slices.Sort(has); !slices.Equal(has, []string{"TCP", "UDP"}) {
			w.problem("%s has %v at port %s: nodes need TCP and UDP", host, has, port)
		}
		return
	}
	w.problem("-join is %q, which is no Service here", w.options["join"])
}

func serviceProblems(s *corev1.Service, all []*workload) (wrong []string) {
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for _, w := range all {
		if selector.Empty() || !selector.Matches(labels.Set(w.Spec.Template.Labels)) {
			continue
		}
		ports := w.ports()
		for _, p := range s.Spec.Ports {
			if _, ok := ports[w.named(p.TargetPort.String()+"/"+string(p.Protocol))]; !ok {
				wrong = append(wrong, fmt.Sprintf("Service %s: %s has no port %s/%s", s.Name, w.Name, &p.TargetPort, p.Protocol))
			}
		}
		return wrong
	}
	return []string{fmt.Sprintf("Service %s selects nothing", s.Name)}
}

func (m *manifests) checkBudget(w *workload) {
	budgets := 0
	for _, b := range m.budgets {
		if !w.selectedBy(b.Spec.Selector) {
			continue
		}
		budgets++
		if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() != 1 {
			w.problem("PodDisruptionBudget %s takes other than one node at a time", b.Name)
		}
	}
	if budgets != 1 { // an eviction refuses pods of two
		w.problem("%d PodDisruptionBudgets are of its pods", budgets)
	}
}

// open are the ports that everybody may reach.
var open = []string{"http/TCP"}

// checkPolicies wants that each declared port is admitted, none besides, and only
// to the peers that it is for.
func (m *manifests) checkPolicies(w *workload) {
	ports := w.ports()
	admitted := make(map[string]bool)
	for _, p := range m.policies {
		if !w.selectedBy(&p.Spec.PodSelector) {
			continue
		}
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			w.problem("NetworkPolicy %s says nothing of what comes in", p.Name)
		}
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) == 0 {
				w.problem("NetworkPolicy %s admits all ports", p.Name)
			}
			for _, port := range rule.Ports {
				name := w.named(portName(port))
				admitted[name] = true
				if _, ok := ports[name]; !ok {
					w.problem("NetworkPolicy %s admits %s, which is not declared", p.Name, name)
				}
				w.checkFrom(p.Name, name, rule.From)
			}
		}
		if slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			w.checkEgress(p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if !admitted[name] {
			w.problem("no NetworkPolicy admits %s", name)
		}
	}
}

func portName(p networkingv1.NetworkPolicyPort) string {
	if p.Port == nil || p.Protocol == nil || p.EndPort != nil {
		return "any"
	}
	return p.Port.String() + "/" + string(*p.Protocol)
}

// named is a port as the pods declare it, "name/protocol", where it is given by its number.
func (w *workload) named(port string) string {
	number, protocol, _ := strings.Cut(port, "/")
	for name, of := range w.ports() {
		if strconv.Itoa(int(of)) == number && strings.HasSuffix(name, "/"+protocol) {
			return name
		}
	}
	return port
}

// checkFrom wants of a rule that it names who reaches a port, and of the nodes' port that
// these are nodes: pods with the cluster's label, or addresses of other regions over TCP.
func (w *workload) checkFrom(policy, port string, from []networkingv1.NetworkPolicyPeer) {
	if len(from) == 0 && !slices.Contains(open, port) {
		w.problem("NetworkPolicy %s admits everybody to %s", policy, port)
	}
	for _, f := range from {
		everybody := (f.PodSelector == nil || selectsAll(f.PodSelector)) && (f.NamespaceSelector == nil || selectsAll(f.NamespaceSelector)) &&
			(f.IPBlock == nil || strings.HasSuffix(f.IPBlock.CIDR, "/0"))
		if everybody {
			w.problem("NetworkPolicy %s admits everybody to %s", policy, port)
		}
		if port != "peers/TCP" && port != "gossip/UDP" {
			continue
		}
		nodes := w.selectedBy(f.PodSelector) && f.NamespaceSelector == nil && f.PodSelector.MatchLabels[memberLabel] != ""
		if !nodes && (f.IPBlock == nil || port == "gossip/UDP") {
			w.problem("NetworkPolicy %s admits others than nodes to %s", policy, port)
		}
	}
}

func selectsAll(s *metav1.LabelSelector) bool {
	return len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// checkEgress wants of a policy on what goes out that it leads to the nodes, to DNS, and to more
// if snapshots are in a bucket.
func (w *workload) checkEgress(p *networkingv1.NetworkPolicy) {
	reaches := make(map[string]bool)
	for _, rule := range p.Spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			w.problem("NetworkPolicy %s lets everything out", p.Name)
		}
		nodes := slices.ContainsFunc(rule.To, func(to networkingv1.NetworkPolicyPeer) bool { return w.selectedBy(to.PodSelector) })
		for _, port := range rule.Ports {
			if name := portName(port); nodes || strings.HasPrefix(name, "53/") {
				reaches[name] = true
			}
		}
	}
	peers := strconv.Itoa(int(w.ports()["peers/TCP"]))
	beyond := func(port networkingv1.NetworkPolicyPort) bool {
		name := portName(port)
		return name != peers+"/TCP" && name != peers+"/UDP" && !strings.HasPrefix(name, "53/")
	}
	if at := w.options["snapshots"]; strings.HasPrefix(at, "s3://") &&
		!slices.ContainsFunc(p.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return slices.ContainsFunc(rule.Ports, beyond) }) {
		w.problem("NetworkPolicy %s does not lead to %s", p.Name, at)
	}
	for _, name := range []string{peers + "/TCP", peers + "/UDP", "53/UDP", "53/TCP"} {
		if !reaches[name] {
			w.problem("NetworkPolicy %s does not let %s out", p.Name, name)
		}
	}
}
