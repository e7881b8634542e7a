package tcp

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// setting returns the words of one of the kernel's settings.
func setting(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		t.Skipf("the kernel does not say what it has: %v", err)
	}
	return strings.Fields(string(text))
}

// Both ends of a connection have the congestion control that is asked for, and without one that does not
// pace, unless the system is to choose.
func TestCongestionControl(t *testing.T) {
	system := setting(t, "tcp_congestion_control")[0]
	asked := map[string]func(name string) bool{
		"":               func(name string) bool { return !paces(name) && (paces(system) || name == system) },
		CongestionAuto:   func(name string) bool { return !paces(name) && (paces(system) || name == system) },
		CongestionSystem: func(name string) bool { return name == system },
	}
	for _, name := range setting(t, "tcp_allowed_congestion_control") {
		asked[name] = func(got string) bool { return got == name }
	}
	for name, fine := range asked {
		p := newPairWith(t, Config{Congestion: name})
		for end, e := range p.ep {
			if got := attributes(t, e)["socket TCP_CONGESTION"]; !fine(got) {
				t.Errorf("%q: end %d has %q, the system %q", name, end, got, system)
			}
		}
	}
}

// What the kernel does not have is refused when the device is opened, with what there is.
func TestNoSuchCongestionControl(t *testing.T) {
	for name, want := range map[string]string{
		"no-such":                setting(t, "tcp_available_congestion_control")[0],
		strings.Repeat("n", 16):  "at most 15 bytes",
		strings.Repeat("n", 300): "at most 15 bytes",
	} {
		d, err := New(Config{Congestion: name}).Open(fabric.Options{})
		if err == nil {
			t.Errorf("%q: opened", name)
			must(t, d.Close())
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %q in it", name, err, want)
		}
	}
}

// Everybody may use the last one that is preferred to one that paces.
func TestUnpacedIsAllowed(t *testing.T) {
	if last := unpaced[len(unpaced)-1]; !slices.Contains(setting(t, "tcp_allowed_congestion_control"), last) {
		t.Errorf("%s is not allowed", last)
	}
	for _, name := range unpaced {
		if paces(name) {
			t.Errorf("%s paces", name)
		}
	}
}
