package kubernetes

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// builtProgram builds rdmad of this tree.
func builtProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "rdmad")
	c := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/rdmad")
	c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// given writes what the ConfigMap of an overlay has into a directory, as the kubelet does.
func given(t *testing.T, config *corev1.ConfigMap) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range config.Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// initialise runs the script of the init container with a directory that is given and one
// that it makes something in.
func initialise(t *testing.T, program, node, given, made string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(given, "peers.sh"), given, made)
	c.Env = []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"), "RDMAD_NODE_NAME=" + node}
	out, err := c.CombinedOutput()
	return string(out), err
}

// value returns a string of a section of a configuration.
func value(t *testing.T, config, section, key string) string {
	t.Helper()
	_, rest, _ := strings.Cut(config, "\n["+section+"]\n")
	rest, _, _ = strings.Cut(rest, "\n[")
	m := regexp.MustCompile(`(?m)^` + key + ` = "(.*)"$`).FindStringSubmatch(rest)
	if m == nil {
		t.Fatalf("the configuration has no %s.%s", section, key)
	}
	return m[1]
}

// The configuration that the init container makes on each node is accepted by rdmad, and
// says what the manifest has: paths, ports, groups.
func TestConfigAndManifestAgree(t *testing.T) {
	program := builtProgram(t)
	worker := kustomize(t, "example").deployments[0].Spec.Template.Spec
	for _, o := range overlays {
		d := daemonOf(t, o.name)
		config := kustomize(t, "overlays/"+o.name).configs[0]
		from := given(t, &config)
		for _, node := range []string{"node-a", "node-b"} {
			made := t.TempDir()
			if out, err := initialise(t, program, node, from, made); err != nil || !strings.HasPrefix(out, "ok ") {
				t.Errorf("%s on %s: %v %s", o.name, node, err, out)
			}
			text, err := os.ReadFile(filepath.Join(made, "config.toml"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `name = "`+node+`"`) || strings.Count(string(text), "\n[[peer]]\n") != 1 {
				t.Errorf("%s on %s: peers of\n%s", o.name, node, text)
			}
		}
		pod, text := &d.Spec.Template.Spec, config.Data["config.toml"]
		if p := value(t, text, "fabric", "provider"); p != o.provider {
			t.Errorf("%s: fabric.provider is %q", o.name, p)
		}
		checkPaths(t, o.name, pod, &config, value(t, text, "node", "socket"))
		checkPorts(t, o.name, pod, value(t, text, "node", "listen"), value(t, text, "fabric", "listen"))
		checkWorker(t, &worker, pod, text)
	}
}

// The daemon answers what the probes ask, with the configuration of the manifests but for
// where its socket and its ports are.
func TestProbes(t *testing.T) {
	program := builtProgram(t)
	pod := daemonOf(t, "tcp").Spec.Template.Spec
	config := kustomize(t, "overlays/tcp").configs[0].Data["config.toml"]
	// Another process may take the port before the daemon does.
	for try := 1; ; try++ {
		log, taken := probe(t, program, config, &pod.Containers[0])
		if !taken {
			return
		}
		if try == 5 {
			t.Fatalf("%d ports were taken before the daemon had them:\n%s", try, log)
		}
	}
}

// probe starts the daemon at a free port and asks it what the probes ask. It returns its log
// if it has ended because the port was not free any more.
func probe(t *testing.T, program, config string, container *corev1.Container) (log string, taken bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdmad-probes-") // short: sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := freeAddress(t)
	for old, now := range map[string]string{"/run/rdmad/": dir + "/", "127.0.0.1:7473": address, "0.0.0.0:7471": "127.0.0.1:0", "0.0.0.0:7472": "127.0.0.1:0"} {
		if !strings.Contains(config, old) {
			t.Fatalf("no %s in\n%s", old, config)
		}
		config = strings.ReplaceAll(config, old, now)
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer // read when the daemon has ended
	daemon := exec.CommandContext(t.Context(), program, "run", "--config", file)
	daemon.Env = []string{"RDMAD_NODE_NAME=node-a"}
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var result error
	go func() {
		result = daemon.Wait()
		close(ended)
	}()
	defer func() {
		_ = daemon.Process.Signal(os.Interrupt) // it may have ended
		<-ended
		if result != nil && !taken {
			t.Errorf("the daemon ended with %v\n%s", result, said.String())
		}
	}()
	for _, p := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		// The kubelet asks again, too, while the daemon starts.
		for deadline := time.Now().Add(3 * time.Minute); ; {
			if err = ask("http://" + address + p.HTTPGet.Path); err == nil {
				break
			}
			select {
			case <-ended:
				log = said.String()
				taken = strings.Contains(log, "address already in use")
				if !taken {
					t.Error(err)
				}
				return log, taken
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	return "", false
}

// freeAddress returns an address that was free just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// prober gives up as the kubelet does, so that an answer that does not come fails one try only.
var prober = http.Client{Timeout: 5 * time.Second}

// ask asks a probe's address, and returns an error unless the answer is good.
func ask(url string) error {
	answer, err := prober.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

// checkPaths checks that what the daemon reads and writes is mounted where it looks.
func checkPaths(t *testing.T, where string, pod *corev1.PodSpec, config *corev1.ConfigMap, socket string) {
	t.Helper()
	main, peers := &pod.Containers[0], &pod.InitContainers[0]
	if v, _, writable := volumeOf(t, pod, main, socket); v.HostPath == nil || !writable || v.HostPath.Path != filepath.Dir(socket) {
		t.Errorf("%s: the socket %s is in %+v", where, socket, v)
	}
	file := main.Command[slices.Index(main.Command, "--config")+1]
	if v, name, _ := volumeOf(t, pod, main, file); v.EmptyDir == nil || name != "config.toml" {
		t.Errorf("%s: the daemon reads %s of %+v", where, file, v)
	}
	if v, name, writable := volumeOf(t, pod, peers, peers.Args[1]+"/config.toml"); v.EmptyDir == nil || name != "config.toml" || !writable || peers.Args[1] != filepath.Dir(file) {
		t.Errorf("%s: the init container writes to %s of %+v", where, peers.Args[1], v)
	}
	v, name, _ := volumeOf(t, pod, peers, peers.Command[1])
	if v.ConfigMap == nil || v.ConfigMap.Name != config.Name || config.Data[name] == "" || peers.Args[0] != filepath.Dir(peers.Command[1]) {
		t.Errorf("%s: the init container runs %s of %+v", where, peers.Command[1], v)
	}
	stop := main.Lifecycle.PreStop.Exec.Command
	drain, err := time.ParseDuration(stop[slices.Index(stop, "--timeout")+1])
	if grace := *pod.TerminationGracePeriodSeconds; err != nil || stop[len(stop)-1] != socket || drain+defaultDrain >= time.Duration(grace)*time.Second {
		t.Errorf("%s: %q before the stop, which may take %d s", where, stop, grace)
	}
	for _, probe := range []*corev1.Probe{main.LivenessProbe, main.ReadinessProbe, main.StartupProbe} {
		if probe == nil || probe.HTTPGet == nil || net.JoinHostPort(probe.HTTPGet.Host, probe.HTTPGet.Port.String()) != value(t, config.Data["config.toml"], "observe", "listen") || probe.TimeoutSeconds < 2 {
			t.Errorf("%s: probe %+v", where, probe)
		}
	}
}

// defaultDrain is the default of node.drain_timeout.
const defaultDrain = 10 * time.Second

// checkPorts checks that the ports of the configuration are those that others are told.
func checkPorts(t *testing.T, where string, pod *corev1.PodSpec, addresses ...string) {
	t.Helper()
	ports := pod.Containers[0].Ports
	if len(ports) != len(addresses) {
		t.Fatalf("%s: %d ports", where, len(ports))
	}
	for i, address := range addresses {
		if want := strings.TrimPrefix(address, "0.0.0.0:"); strconv.Itoa(int(ports[i].ContainerPort)) != want || ports[i].HostPort != ports[i].ContainerPort {
			t.Errorf("%s: port %+v, and the configuration says %s", where, ports[i], address)
		}
	}
}

// checkWorker checks that the example's worker finds the socket and is admitted.
func checkWorker(t *testing.T, worker, daemon *corev1.PodSpec, config string) {
	t.Helper()
	socket := value(t, config, "node", "socket")
	v, _, _ := volumeOf(t, worker, &worker.Containers[0], socket)
	host, _, _ := volumeOf(t, daemon, &daemon.Containers[0], socket)
	if v.HostPath.Path != host.HostPath.Path || worker.Containers[0].Env[0].Value != socket {
		t.Errorf("the worker mounts %s and looks for %s", v.HostPath.Path, worker.Containers[0].Env[0].Value)
	}
	if group := strconv.FormatInt(*worker.SecurityContext.RunAsGroup, 10); !strings.Contains(config, "\ngroups = [\""+group+"\"]\n") {
		t.Errorf("no domain admits the worker's group %s", group)
	}
	if user := strconv.FormatInt(*daemon.Containers[0].SecurityContext.RunAsUser, 10); !strings.Contains(config, "\nusers = [\""+user+"\"]\n") {
		t.Errorf("no domain admits the user %s of the probes", user)
	}
	if value(t, config, "node", "socket_mode") != "0666" {
		t.Error("the socket is closed to users other than the daemon's")
	}
}

// Mistakes in the list of peers end the init container, with one line that says why.
func TestBadPeers(t *testing.T) {
	program := builtProgram(t)
	config := kustomize(t, "overlays/tcp").configs[0]
	for _, c := range []struct{ peers, node, want string }{
		{"node-a 192.0.2.1:7471\n", "node-z", "no line for this node, node-z"},
		{"node-a\n", "node-a", "want a name and an address"},
		{"node-a 192.0.2.1:7471 more\n", "node-a", "want a name and an address"},
		{"node-a 192.0.2.1:7471\nnode-b nowhere\n", "node-a", "peer[0].address"},
		{"node-a 192.0.2.1:7471\nb\"x 192.0.2.2:1\n", "node-a", "config.toml"},
	} {
		from, made := given(t, &config), t.TempDir()
		if err := os.WriteFile(filepath.Join(from, "peers"), []byte(c.peers), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := initialise(t, program, c.node, from, made)
		if err == nil || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: %v, %q, want %q", c.peers, err, out, c.want)
		}
	}
}
