package kubernetes

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// objects are what a kustomization makes.
type objects struct {
	namespaces  []corev1.Namespace
	configs     []corev1.ConfigMap
	daemons     []appsv1.DaemonSet
	deployments []appsv1.Deployment
}

// kustomize does what "kubectl apply -k" does before it talks to a cluster, and decodes
// every object strictly: a field that Kubernetes does not have is an error.
func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var o objects
	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		switch kind := r.GetKind(); kind {
		case "Namespace":
			o.namespaces = append(o.namespaces, decode[corev1.Namespace](t, text))
		case "ConfigMap":
			o.configs = append(o.configs, decode[corev1.ConfigMap](t, text))
		case "DaemonSet":
			o.daemons = append(o.daemons, decode[appsv1.DaemonSet](t, text))
		case "Deployment":
			o.deployments = append(o.deployments, decode[appsv1.Deployment](t, text))
		default:
			t.Errorf("%s: the tests know no %s", dir, kind)
		}
	}
	return o
}

func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	return v
}

// Strict means it: a misspelt field and one that is given twice are found.
func TestStrict(t *testing.T) {
	for _, text := range []string{"spec:\n  hostNetwrok: true\n", "spec:\n  hostPID: true\n  hostPID: false\n"} {
		if err := yaml.UnmarshalStrict([]byte(text), new(corev1.Pod)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

// overlays are the ways to run daemons.
var overlays = []struct {
	name, provider string
	rdma           bool
}{{"tcp", "tcp", false}, {"rdma", "verbs", true}}

// The daemon has exactly what it needs: with RDMA a device and the right to lock memory,
// without it nothing.
func TestDaemonSecurity(t *testing.T) {
	for _, o := range overlays {
		d := daemonOf(t, o.name)
		pod := d.Spec.Template.Spec
		if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			t.Errorf("%s: variables of services can be taken for keys of the configuration", d.Name)
		}
		if !pod.HostNetwork || !pod.HostPID || pod.HostIPC || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: namespaces of the host, or a token: %+v", o.name, pod)
		}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			restricted(t, o.name, &c)
			var add []corev1.Capability
			if o.rdma && c.Name == "rdmad" {
				add = []corev1.Capability{"IPC_LOCK"}
			}
			if got := c.SecurityContext.Capabilities.Add; len(got) != len(add) || len(add) == 1 && got[0] != add[0] {
				t.Errorf("%s: %s has the capabilities %q, want %q", o.name, c.Name, got, add)
			}
			devices := 0
			for name := range c.Resources.Limits {
				if strings.HasPrefix(string(name), "rdma/") {
					devices++
				}
			}
			if (devices == 1) != (len(add) == 1) {
				t.Errorf("%s: %s has %d devices", o.name, c.Name, devices)
			}
		}
	}
}

// restricted checks what every container of these manifests is kept from.
func restricted(t *testing.T, where string, c *corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || s.Capabilities == nil || s.AllowPrivilegeEscalation == nil || s.ReadOnlyRootFilesystem == nil {
		t.Fatalf("%s: %s has no complete security context: %+v", where, c.Name, s)
	}
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil && *s.Privileged {
		t.Errorf("%s: %s: %+v", where, c.Name, s)
	}
	if drop := s.Capabilities.Drop; len(drop) != 1 || drop[0] != "ALL" {
		t.Errorf("%s: %s drops %q", where, c.Name, drop)
	}
}

// A worker gets the directory of the socket, and nothing else of the host.
func TestWorkerSecurity(t *testing.T) {
	o := kustomize(t, "example")
	if len(o.deployments) != 1 {
		t.Fatalf("%d deployments", len(o.deployments))
	}
	pod := o.deployments[0].Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || *pod.AutomountServiceAccountToken || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 {
		t.Errorf("%+v", pod)
	}
	for _, c := range pod.Containers {
		restricted(t, "example", &c)
		if len(c.SecurityContext.Capabilities.Add) > 0 {
			t.Errorf("%s has capabilities", c.Name)
		}
		for name := range c.Resources.Limits {
			if name != corev1.ResourceMemory && name != corev1.ResourceCPU {
				t.Errorf("%s has a %s", c.Name, name)
			}
		}
		if len(c.VolumeMounts) != 1 || !c.VolumeMounts[0].ReadOnly {
			t.Errorf("%s mounts %+v", c.Name, c.VolumeMounts)
		}
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].HostPath == nil || *pod.Volumes[0].HostPath.Type != corev1.HostPathDirectory {
		t.Errorf("volumes: %+v", pod.Volumes)
	}
}

// Whoever selects pods selects those of its template, and names of images are one.
func TestSelectors(t *testing.T) {
	for _, o := range overlays {
		d := daemonOf(t, o.name)
		for k, v := range d.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("%s: the selector %s=%s does not select its pods", o.name, k, v)
			}
		}
	}
	d := kustomize(t, "example").deployments[0]
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the selector %s=%s does not select its pods", k, v)
		}
	}
	if d.Namespace != kustomize(t, "example").namespaces[0].Name {
		t.Errorf("the deployment is in namespace %s", d.Namespace)
	}
}

// daemonOf returns the only DaemonSet of an overlay.
func daemonOf(t *testing.T, overlay string) *appsv1.DaemonSet {
	t.Helper()
	o := kustomize(t, "overlays/"+overlay)
	if len(o.daemons) != 1 || len(o.configs) != 1 || len(o.namespaces) != 1 || o.daemons[0].Namespace != o.namespaces[0].Name {
		t.Fatalf("%s: %+v", overlay, o)
	}
	return &o.daemons[0]
}

// volumeOf returns the volume that a container mounts at a path or above it, and the
// path within.
func volumeOf(t *testing.T, pod *corev1.PodSpec, c *corev1.Container, path string) (*corev1.Volume, string, bool) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		rest, is := strings.CutPrefix(path, m.MountPath+"/")
		if !is {
			continue
		}
		for i := range pod.Volumes {
			if pod.Volumes[i].Name == m.Name {
				return &pod.Volumes[i], rest, !m.ReadOnly
			}
		}
		t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
	}
	t.Fatalf("%s mounts nothing at %s", c.Name, path)
	return nil, "", false
}

// Everything that has a kustomization can be made.
func TestEveryKustomization(t *testing.T) {
	for _, dir := range []string{"base", "overlays/tcp", "overlays/rdma", "example"} {
		made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := made.AsYaml()
		if err != nil || len(bytes.TrimSpace(text)) == 0 {
			t.Errorf("%s: %v, %d bytes", dir, err, len(text))
		}
	}
}
