package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
)

// A reload of a file that somebody is just writing changes nothing, and what is reloaded can be found from any directory.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "rdmad.sock")
	content := fmt.Appendf(nil, "[node]\nname=\"a\"\nlisten=\"127.0.0.1:0\"\nsocket=%q\ndrain_timeout=\"100ms\"\n[log]\nlevel=\"error\"\n[[peer]]\nname=\"b\"\naddress=\"127.0.0.1:9\"\n", socket)
	t.Chdir(dir)
	if err := os.WriteFile("config.toml", content, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := patientContext(t)
	supervisor := daemontest.Spawn(t, "supervisor", "config.toml")
	defer supervisor.Kill()
	c := attachSoon(socket)
	defer c.Close()
	look := func() (s status.Node) {
		data, err := c.Status(ctx)
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got, want := look().Config.Source, filepath.Join(dir, "config.toml"); got != want {
		t.Errorf("the configuration is from %q, want %q", got, want)
	}
	for number, c := range []struct{ content, result string }{{"", status.ReloadRefused}, {string(content), status.ReloadDone}} {
		if err := os.WriteFile("config.toml", []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(look().PIDs.Supervisor, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		var s status.Node
		daemontest.Eventually(t, "the reload", func() error {
			if s = look(); s.Config.Reload == nil || s.Config.Reload.Number != number+1 {
				return errors.New("not yet")
			}
			return nil
		})
		if r := s.Config.Reload; r.Result != c.result || c.result == status.ReloadRefused && !strings.Contains(strings.Join(r.Problems, " "), filepath.Join(dir, "config.toml")+" is empty") {
			t.Errorf("a file of %d bytes: %+v", len(c.content), r)
		}
		if len(s.Peers) != 1 {
			t.Errorf("after a reload of %d bytes there are %d peers", len(c.content), len(s.Peers))
		}
	}
}
