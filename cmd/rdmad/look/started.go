package look

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/status"
)

// Started is what a daemon was started with.
type Started struct {
	// Source is its configuration file; empty: that is not known.
	Source string
	// InForce is what it says is in force; nil if it does not.
	InForce *config.Config
	// Overrides are the keys that it has from its flags and its environment, whatever the file says; nil if it does not
	// tell them.
	Overrides []config.Override
}

// StartedOf returns what a daemon was started with, by its status as it came.
func StartedOf(raw json.RawMessage) (Started, error) {
	n, err := Parse(raw)
	if err != nil {
		return Started{}, err
	}
	if n.Config == nil {
		return Started{}, errors.New("the daemon does not tell its configuration; see: rdmad version")
	}
	s := Started{Source: n.Config.Source, Overrides: n.Config.Overrides}
	var exact status.Node // what is for people has no lines
	if err := json.Unmarshal(raw, &exact); err != nil {
		return s, fmt.Errorf("status: %w", err)
	}
	s.InForce, err = config.ParseOwn("the daemon's configuration", []byte(exact.Config.TOML))
	return s, err
}

// Over says what of the daemon's flags and environment counts over its file; empty: nothing.
func (s Started) Over() string {
	var list []string
	for _, o := range s.Overrides {
		list = append(list, o.From)
	}
	return strings.Join(list, ", ")
}

// Again returns why the file cannot be read again: another process has another /dev/stdin, and a pipe says everything
// once. It is nil if the file does not exist, which reading it tells.
func (s Started) Again() error {
	names := []string{filepath.Clean(s.Source)}
	if real, err := filepath.EvalSymlinks(s.Source); err == nil {
		names = append(names, real)
	}
	info, err := os.Stat(s.Source)
	if slices.ContainsFunc(names, ofThisProcess) || err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the daemon was started with -c %s, which cannot be read again", s.Source)
	}
	return nil
}

// Sources returns what the daemon would make a configuration of if it read a file now. Where it does not tell, that is with
// the environment of this process.
func (s Started) Sources(file string) config.Sources {
	if s.Overrides == nil {
		return config.Sources{File: file, Environ: os.Environ()}
	}
	from := config.Sources{File: file}
	for _, o := range s.Overrides {
		from.Set = append(from.Set, o.Setting())
	}
	return from
}

// ofThisProcess reports whether a name can mean something else to each process.
func ofThisProcess(name string) bool {
	return strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
}
