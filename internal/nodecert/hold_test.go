package nodecert

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Who was killed while making certificates has left nothing that keeps the next one from it.
func TestMakeAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[certs]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, key, err := newAuthority(t).PEM()
	if err != nil {
		t.Fatal(err)
	}
	keyFile, half := filepath.Join(dir, CAKeyFile), filepath.Join(dir, ".rdmad-certs-123")
	if err := errors.Join(os.WriteFile(keyFile, key, 0o600), os.WriteFile(half, key[:10], 0o600)); err != nil {
		t.Fatal(err)
	}
	p := Plan{Dir: dir, Nodes: []string{"a"}, CAValid: time.Hour, NodeValid: time.Hour}
	m, err := Make(p)
	if err != nil || !m.NewCA {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, err := Load(Open, m.Nodes[0].Files); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(keyFile); err != nil || !slices.Equal(now, key) {
		t.Errorf("the authority has another key, %v", err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was half made: %v", err)
	}

	// With that of an authority which has made something no other is made.
	for file, words := range map[string]string{CAFile: "bring back the certificate from any node", CAKeyFile: "bring back the key"} {
		path := filepath.Join(dir, file)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		p.Nodes = []string{"b"}
		if _, err := Make(p); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("without %s: %v", file, err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
}

// Many that make certificates in one new directory make one authority, and all that they were asked for.
func TestMakeAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	const makers = 8
	var all sync.WaitGroup
	for i := range makers {
		all.Go(func() {
			node := fmt.Sprintf("n%d", i)
			m, err := Make(Plan{Dir: dir, Nodes: []string{node}, CAValid: time.Hour, NodeValid: time.Hour})
			if err == nil {
				_, err = Load(Open, m.Nodes[0].Files)
			}
			if err != nil {
				t.Errorf("%s: %v", node, err)
			}
		})
	}
	all.Wait()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2+2*makers {
		t.Errorf("%v, %v", files, err)
	}
}
