package test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Two daemons that are given the same socket for HTTP, or the same file of counters, take nothing from each other.
func TestObservedBesideAnother(t *testing.T) {
	t.Run("socket", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "http")
		c := newCluster(t, sandbox.Settings{Extra: "[observe]\nsocket = \"" + socket + "\"\n"}, "a", "b")
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}, DisableKeepAlives: true}
		serves := func() {
			t.Helper()
			r, err := (&http.Client{Transport: transport}).Get("http://node/healthz")
			if err != nil {
				t.Fatal(err)
			}
			if _ = r.Body.Close(); r.StatusCode != http.StatusOK {
				t.Errorf("node a answers with %s", r.Status)
			}
		}
		c.start("a")
		serves()
		run(t, rdmad(t, "run", "-c", filepath.Join(c.dir, "b.toml"))).check(t, "run", 1, "observe.socket", "listens at "+socket)
		serves()
		c.crash("a") // what a dead one has left is taken
		serves()
	})
	t.Run("counters", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "counters")
		c := newCluster(t, sandbox.Settings{Extra: "[observe]\ncounters = \"" + file + "\"\n"}, "a", "b")
		c.start("a")
		c.start("b")
		whose := func() {
			t.Helper()
			run(t, rdmad(t, "counters", "--file", file)).check(t, "counters", 0, "node a")
		}
		whose()
		c.counts("b", "counters-none")
		c.stop("b")
		whose()
	})
}
