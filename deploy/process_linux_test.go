package deploy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// binaries builds the programs of the images, and returns their folder. go run caches the
// linked programs, unlike go build.
func binaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"./cmd/weir", "./examples/gateway"} {
		c := exec.CommandContext(t.Context(), "go", "run", "-exec", "cp -t "+dir, program)
		c.Dir = ".."
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// command returns the command that a container runs.
func command(t *testing.T, binaries string, c *container, args ...string) *exec.Cmd {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(c.Image), ":")
	return exec.CommandContext(t.Context(), filepath.Join(binaries, name), args...)
}

func TestContainersRunAsTheirManifests(t *testing.T) {
	built, manifests := binaries(t), allManifests(t)
	t.Run("its command understands its flags and environment", func(t *testing.T) {
		t.Parallel()
		requireValidFlags(t, built, manifests)
	})
	network := rand.IntN(1 << 15)
	for name, twin := range map[string]string{
		"helm/default": "", "kustomize/sidecar": "", "kustomize/embedded": "",
		"kustomize/server": "helm/default", "helm/sidecar": "kustomize/sidecar", "helm/embedded": "kustomize/embedded",
	} {
		network++
		addresses := fmt.Sprintf("127.%d.%d.", 64+network>>8&127, network&255)
		t.Run("three are ready together and leave in time: "+name, func(t *testing.T) {
			if twin != "" {
				testenv.SkipUnlessFull(t, "the same container of "+twin+", and for its flags by the test of those")
			}
			t.Parallel()
			testThreeReplicas(t, built, manifests[name], addresses)
		})
	}
}

// requireValidFlags starts each command without the files that it names. A command that looks
// for them has accepted its flags, and exits with 1. A wrong flag exits with 2.
func requireValidFlags(t *testing.T, built string, all map[string]manifests) {
	for name, m := range all {
		w := m.workload(t)
		c := command(t, built, w.node, w.node.Args...)
		for _, e := range w.node.Env {
			if e.ValueFrom == nil {
				c.Env = append(c.Env, e.Name+"="+e.Value)
			}
		}
		out, err := c.CombinedOutput()
		require.Error(t, err, name)
		require.Equal(t, 1, c.ProcessState.ExitCode(), "%s: %q: %s", name, w.node.Args, out)
		require.Contains(t, string(out), "/etc/weir/", name)

		wrong := command(t, built, w.node, append(w.node.Args, "-no_such_flag")...)
		out, err = wrong.CombinedOutput()
		require.Error(t, err, name)
		require.Equal(t, 2, wrong.ProcessState.ExitCode(), "%s: %s", name, out)
	}
}

const (
	adminToken  = "0123456789abcdef0123456789abcdef"
	checksToken = "fedcba9876543210fedcba9876543210"
)

// mountFiles writes files like the kubelet: the names are links to files of a directory that
// is itself behind a link.
func mountFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "..1"), 0o700))
	require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "..1", name), []byte(text), 0o400))
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
}

// mountAll returns the folder that replaces /etc/weir.
func mountAll(t *testing.T, m manifests, w *workload) string {
	t.Helper()
	dir := t.TempDir()
	for _, v := range w.Spec.Template.Spec.Volumes {
		for _, c := range m.ofKind("ConfigMap") {
			if c.Metadata.Name == v.ConfigMap.Name {
				mountFiles(t, filepath.Join(dir, "rules"), c.Data)
			}
		}
	}
	mountFiles(t, filepath.Join(dir, "shared"), map[string]string{"weir.secret": "secret: 000102030405060708090a0b0c0d0e0f\nseed: 0f0e0d0c0b0a09080706050403020100\n"})
	mountFiles(t, filepath.Join(dir, "tokens"), map[string]string{"admin": adminToken + "\n", "checks": checksToken + "\n"})
	return dir
}

// replica is a process with the configuration of a container, at a separate address.
type replica struct {
	*lab.Child
	ip  string
	w   *workload
	out lab.Text
}

// start starts the container at ip. The addresses of ips replace those of the Service.
func start(t *testing.T, binaries, mounts string, w *workload, ip string, ips []string) *replica {
	t.Helper()
	peers := fmt.Sprint(w.ports()["peers/TCP"])
	join := make([]string, len(ips))
	for i, of := range ips {
		join[i] = net.JoinHostPort(of, peers)
	}
	args := make([]string, len(w.node.Args))
	for i, arg := range w.node.Args {
		if strings.HasPrefix(arg, "-join=") {
			arg = "-join=" + strings.Join(join, ",")
		}
		arg = strings.ReplaceAll(arg, "=:", "="+ip+":")
		args[i] = strings.NewReplacer("$(POD_IP)", ip, "127.0.0.1:", ip+":", "/etc/weir/", mounts+"/").Replace(arg)
	}
	r, c := &replica{ip: ip, w: w}, command(t, binaries, w.node, args...)
	for _, e := range w.node.Env {
		switch {
		case e.ValueFrom == nil:
			c.Env = append(c.Env, e.Name+"="+e.Value)
		case e.ValueFrom.ResourceFieldRef.Resource == "requests.memory":
			c.Env = append(c.Env, fmt.Sprintf("%s=%dMiB", e.Name, mebibytes(t, w.node.Resources.Requests.Memory)))
		case e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			c.Env = append(c.Env, e.Name+"=weir-"+strings.ReplaceAll(ip, ":", "-"))
		}
	}
	var err error
	c.Stderr = &r.out
	r.Child, err = lab.StartCommand(c, func(line []byte) { fmt.Fprintf(&r.out, "%s\n", line) })
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = r.Kill()
		<-r.Ended()
		if t.Failed() {
			t.Logf("%v:\n%s", args, &r.out)
		}
	})
	return r
}

// get sends a request to a named port of the container. The timeout allows for a busy
// machine, and is not a promise of the manifests.
func (r *replica) get(port, path string) (status int, body string) {
	client := http.Client{Timeout: 30 * time.Second}
	a, err := client.Get(fmt.Sprintf("http://%s:%d%s", r.ip, r.w.ports()[port+"/TCP"], path))
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(text)
}

// takeUnit takes a unit of the hourly limit of the rules, if weir serve has -checks.
func (r *replica) takeUnit(t *testing.T) string {
	t.Helper()
	_, port, _ := strings.Cut(r.w.options["checks"], ":")
	ask, err := http.NewRequest(http.MethodPost, "http://"+r.ip+":"+port+"/v1/take", strings.NewReader(`{"limit":"api/hourly","key":"123"}`))
	require.NoError(t, err)
	ask.Header.Set("Content-Type", "application/json")
	if r.w.options["checks_tokens"] != "" {
		ask.Header.Set("Authorization", "Bearer "+checksToken)
	}
	a, err := http.DefaultClient.Do(ask)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return string(text)
}

// patience bounds the waits. The manifests promise no duration, which depends on the load
// of the machine.
const patience = 3 * time.Minute

// awaitHealthy waits until the node reports no problem: all members are serving, and all
// addresses of -join are met.
func (r *replica) awaitHealthy(t *testing.T, binaries, mounts string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		c := command(t, binaries, r.w.node, "status", "-admin", r.admin(), "-token_file", filepath.Join(mounts, "tokens", "admin"))
		out, err := c.CombinedOutput()
		if err == nil {
			return
		}
		require.Less(t, time.Since(begun), patience, "%v: %s", err, out)
	}
}

func (r *replica) admin() string {
	_, port, _ := strings.Cut(r.w.options["admin"], ":")
	return "http://" + r.ip + ":" + port
}

// leave ends a pod like Kubernetes, but without the wait before SIGTERM, in which the
// node is not involved.
func (r *replica) leave(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Leave())
	grace := time.Duration(r.w.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second - r.w.preStop()
	late := lab.MeasureDelay()
	defer late.Stop()
	begun := time.Now()
	for { // extended by the scheduling delay of this machine
		allowed := grace + late.Total()
		select {
		case <-r.Ended():
			require.True(t, r.Succeeded(), r.Outcome())
			return
		case <-time.After(allowed - time.Since(begun)):
		}
		if time.Since(begun) > grace+late.Total() {
			require.Fail(t, "it has not left", "after %v", allowed)
		}
	}
}

func testThreeReplicas(t *testing.T, built string, m manifests, network string) {
	w := m.workload(t)
	require.Equal(t, 3, *w.Spec.Replicas)
	mounts := mountAll(t, m, w)
	ips := []string{network + "1", network + "2", network + "3"}
	var nodes []*replica
	for _, ip := range ips {
		nodes = append(nodes, start(t, built, mounts, w, ip, ips))
	}
	ready, live := w.node.ReadinessProbe.HTTPGet, w.node.LivenessProbe.HTTPGet
	for _, n := range nodes {
		require.Eventually(t, func() bool { status, _ := n.get(ready.Port, ready.Path); return status == http.StatusOK }, patience, 20*time.Millisecond, "it is not ready")
		status, body := n.get(live.Port, live.Path)
		require.Equal(t, http.StatusOK, status, body)
	}
	if w.node.Args[0] != "serve" {
		for _, n := range nodes {
			n.leave(t)
		}
		return
	}
	status, body := nodes[0].get("health", w.Spec.Template.Metadata.Annotations["prometheus.io/path"])
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "weir_ready 1\n")
	for _, n := range nodes {
		n.awaitHealthy(t, built, mounts)
	}
	// The replicas share a count. On a busy machine a node may decide by its own share
	// until the connection to the owner of the key is restored. A later take then shows
	// the total count.
	begun, taken, answer := time.Now(), 0, ""
	for taken < len(nodes) || !strings.Contains(answer, fmt.Sprintf(`"remaining":%d`, 1000-taken)) {
		if taken >= len(nodes) {
			require.Less(t, time.Since(begun), patience, answer)
			time.Sleep(200 * time.Millisecond)
		}
		answer = nodes[taken%len(nodes)].takeUnit(t)
		require.Contains(t, answer, `"allowed":true`)
		taken++
	}
	for _, n := range nodes {
		n.leave(t)
	}
}
