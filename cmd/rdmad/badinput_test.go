package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// badInput says how a command is made to fail, whatever the reason.
type badInput struct {
	// wrong are arguments that are refused with exitUsage, besides a flag that does not
	// exist.
	wrong []string
	// asks are arguments with which it asks a daemon; nil if it never does. alone says
	// that it works without one.
	asks  *string
	alone bool
	// beside says that it reads the file beside the socket instead.
	beside bool
	// prints are arguments with which it prints without a daemon; nil if it cannot. A
	// command that asks is tried with a daemon. silent says why it is not.
	prints *string
	silent string
	// writes are arguments with which it makes files in DIR; nil if it makes none. In DIR
	// is also $TMPDIR, and the socket of the configuration CONFIG.
	writes *string
}

// with makes a pointer to arguments.
func with(args string) *string { return &args }

// badInputs has an entry for every command.
var badInputs = map[string]badInput{
	"rdmad":                       {wrong: []string{"nonsense", "statu"}, prints: with("")},
	"rdmad bench":                 {wrong: []string{"nonsense"}, prints: with("")},
	"rdmad bench call":            {wrong: []string{"extra", "--clients 0", "--size 1XB", "--size 3000000000", "--count x"}, asks: with("--count 100 --warmup 0s --target b")},
	"rdmad bench oneway":          {wrong: []string{"extra", "--clients -1"}, asks: with("--count 100 --warmup 0s --target b")},
	"rdmad bench pages":           {wrong: []string{"extra", "--depth -1"}, asks: with("--count 100 --warmup 0s --target b")},
	"rdmad bench stream":          {wrong: []string{"extra", "--count 1 --duration 1s"}, asks: with("--count 100 --warmup 0s --target b")},
	"rdmad bench-worker":          {wrong: []string{"extra"}},
	"rdmad call":                  {wrong: []string{"", "a b c", "garbage", "a/b/c/d x", "/echo/echo x", "b//x", "b/x/", "echo/", "a/b/c --answer-size x", "a/b/c --answer-size 2GiB"}, asks: with("b/echo/echo hello")},
	"rdmad certs":                 {wrong: []string{"nonsense"}, prints: with("")},
	"rdmad certs init":            {wrong: []string{"", "a", "--dir x", "--dir x --days 0 a", "--dir x --ca-days 0 a", "--dir x ../a"}, writes: with("--dir DIR/certs a")},
	"rdmad certs show":            {wrong: []string{""}},
	"rdmad completion":            {wrong: []string{"nonsense"}, prints: with("")},
	"rdmad completion bash":       {wrong: []string{"extra"}, prints: with("")},
	"rdmad completion fish":       {wrong: []string{"extra"}, prints: with("")},
	"rdmad completion powershell": {wrong: []string{"extra"}, prints: with("")},
	"rdmad completion zsh":        {wrong: []string{"extra"}, prints: with("")},
	"rdmad config":                {wrong: []string{"nonsense"}, prints: with("")},
	"rdmad config check":          {wrong: []string{"extra", "-c /nonexistent.toml"}, prints: with("-c CONFIG")},
	"rdmad config diff":           {wrong: []string{"a b", "-c CONFIG --set x", "/nonexistent.toml", "BAD", "-c CONFIG CONFIG"}, asks: with("CONFIG")},
	"rdmad config docs":           {wrong: []string{"extra"}, prints: with("")},
	"rdmad config example":        {wrong: []string{"extra"}, prints: with("")},
	"rdmad config explain-memory": {wrong: []string{"extra", "-c /nonexistent.toml", "-c CONFIG --workers -1", "-c CONFIG --workers 100000000000000"}, prints: with("-c CONFIG")},
	"rdmad config show":           {wrong: []string{"extra", "-c /nonexistent.toml"}, prints: with("-c CONFIG")},
	"rdmad core":                  {wrong: []string{"extra"}, prints: with("--probe")},
	"rdmad counters":              {wrong: []string{"extra", "--interval x", "--interval 1ms --watch", "--interval 5s"}, asks: with(""), beside: true},
	"rdmad devices":               {wrong: []string{"extra"}, prints: with("")},
	"rdmad doctor":                {wrong: []string{"extra"}, asks: with("-c CONFIG"), alone: true},
	"rdmad drain":                 {wrong: []string{"extra", "--timeout -1s", "--timeout x", "--undo --timeout 1s"}, asks: with("--undo")},
	"rdmad echo":                  {wrong: []string{"extra", "--workers 0", "--wait never"}, asks: with(""), silent: "it serves on"},
	"rdmad help":                  {wrong: []string{"nonsense", "bench nonsense"}, prints: with("status")},
	"rdmad lanes":                 {wrong: []string{"--state sideways"}, asks: with("")},
	"rdmad peers":                 {wrong: []string{"--state sideways"}, asks: with("")},
	"rdmad perf":                  {wrong: []string{"nonsense"}, prints: with("")},
	"rdmad perf blast": {
		wrong: []string{"a b", "--op atomic", "--tx-depth 0 --self", "--rx-depth 100000 --self", "--post-list 200 --self", "-s 0 --self", "-s 9MiB --self", "--min-bw -1",
			"--min-bw NaN", "--min-bw Inf", "-q 0 --self", "-q 129 --self", "-q x", "-b -q 128 -s 8MiB --self"},
		prints: with("--self -n 10 -q 2 -b"), writes: with("--self -n 10 --plot DIR/plot.svg"),
	},
	"rdmad perf atomics": {
		wrong: []string{
			"a b", "-A nonsense", "--clients 0 --self", "--clients 257 --self", "--connections 0 --self", "--clients 2 --connections 129 --self", "-n 0 --self", "-n x", "-t 0 --self", "-t 2000 --self", "--max-p99 -1s",
			"--min-msgrate -1", "--min-msgrate NaN", "--provider shm", "--member 127.0.0.1",
		},
		prints: with("--self -n 10"),
	},
	"rdmad perf randomfill": {
		wrong: []string{
			"a b", "-s 0 --self", "-s 17MiB --self", "-s 1XB", "--pages 0 --self", "--pages 17 --self", "--region-size 0 --self", "--region-size 1GiB --self",
			"--index-0 1 --self", "--index-0 16 --index-1 0 --self", "--index-0 1,1 --index-1 0,1 --self", "--index-0 0,1 --index-1 0 --self",
			"--index-0 4294967296 --index-1 0", "--index-0 -1 --index-1 0", "--index-0 0 --index-1 0 --pages 2 --self", "-n 0 --self", "-t 0 --self", "--min-bw -1", "a/b",
		},
		prints: with("--self -s 4KiB"),
	},
	"rdmad perf rc": {
		wrong:  []string{"a b", "-s 0 --self", "-s 9MiB --self", "-s x", "--poll-timeout 0 --self", "--poll-timeout 61s --self", "--poll-timeout x", "--fabric nonsense", "--min-bw -1"},
		prints: with("--self"),
	},
	"rdmad perf pingpong": {
		wrong: []string{
			"a b", "--op nonsense", "--fabric nonsense", "--fabric verbs --provider shm", "--provider shm", "-d x", "-x 3", "--source nonsense", "--source 192.0.2.1 --self", "--listen 192.0.2.1 -p 0",
			"--self host", "--listen x", "--listen 127.0.0.1 host", "-p 70000", "host -p 0", "a/b", "1.2.3.999", "[::1", "-s 0 --self", "-s 9MiB --self", "-s 1XB", "-n 0",
			"-n 1 -D 1", "-D x", "-D -1s", "-a -s 2", "-I -2", "-I 100000 --self", "--op write -e --self", "--plot x.png", "--plot /nonexistent/x.svg", "--max-p99 -1s", "--child",
		},
		prints: with("--self -n 10"), writes: with("--self -n 10 --plot DIR/plot.svg"),
	},
	"rdmad ping":   {wrong: []string{"", "a b", "b -n 0", "b --interval -1s"}, asks: with("b -n 1")},
	"rdmad reload": {wrong: []string{"extra", "--timeout x"}, asks: with(""), silent: "it would reload the configuration of the other tests"},
	"rdmad run":    {wrong: []string{"extra", "-c /nonexistent.toml", "-c BAD"}, writes: with("-c CONFIG")},
	"rdmad sandbox": {wrong: []string{"", "--lanes -1 -- true", "--fabric-option x -- true", "--fabric verbs --fabric-option timeout=x -- true", "--fabric-option timeout=18 -- true", "--fabric foo -- true", "--idle foo -- true", "--balance foo -- true",
		"--lanes 99 -- true", "--lanes 0 -- true", "--group-max 0 -- true", "--group-max 1000 -- true", "--max-group-delay 1h -- true", "--fabric verbs --verbs-connect foo -- true", "--fabric libfabric --verbs-device x -- true"}, writes: with("-- true")},
	"rdmad services":       {wrong: []string{"--nonsense"}, asks: with("")},
	"rdmad status":         {wrong: []string{"extra"}, asks: with("")},
	"rdmad support-bundle": {wrong: []string{"extra", "--limit 0s", "--json -o -"}, asks: with("-o -"), alone: true, writes: with("-o DIR/bundle.tar.gz")},
	"rdmad top":            {wrong: []string{"extra", "--interval 1ms", "--count -1", "--once --count 2", "--sort nonsense"}, asks: with("--once")},
	"rdmad trace":          {wrong: []string{"extra", "--count 0", "--timeout x"}, asks: with("--timeout 100ms"), silent: "it prints nothing when there is no request to follow"},
	"rdmad upgrade":        {wrong: []string{"extra", "--timeout x"}, asks: with(""), silent: "it would replace the core of the other tests"},
	"rdmad version":        {wrong: []string{"extra"}, prints: with("")},
	"rdmad workers":        {wrong: []string{"--role nobody"}, asks: with("")},
}

// optional are commands of builds with tags.
var optional = []string{"rdmad docs"}

// allCommands returns every command of the tree, hidden ones too.
func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// Every command has an entry, and every entry a command: what is new is tried, too.
func TestEveryCommandIsTried(t *testing.T) {
	root := newRoot()
	addStandard(root)
	var paths []string
	for _, c := range allCommands(root) {
		path := c.CommandPath()
		paths = append(paths, path)
		if _, ok := badInputs[path]; !ok && !slices.Contains(optional, path) {
			t.Errorf("%s: badInputs has no entry for it", path)
		}
		b := badInputs[path]
		if c.Flags().Lookup("socket") != nil && b.asks == nil {
			t.Errorf("%s: it has --socket, and the entry says nothing of a daemon", path)
		}
		for _, flag := range []string{"dir", "output"} {
			if c.Flags().Lookup(flag) != nil && b.writes == nil {
				t.Errorf("%s: it has --%s, and the entry says nothing of files", path, flag)
			}
		}
	}
	for path := range badInputs {
		if !slices.Contains(paths, path) {
			t.Errorf("%s: badInputs has an entry for it, and there is no such command", path)
		}
	}
}

// A wrong command line is refused with one line that says where to look, and the status
// for that.
func TestWrongArguments(t *testing.T) {
	f := newFixture(t)
	for path, b := range badInputs {
		for _, args := range append([]string{"--no-such-flag"}, b.wrong...) {
			r := f.run(path, args)
			r.oneLine(exitUsage)
			// A configuration that is refused is told by its places, of which flags are one.
			if !slices.ContainsFunc([]string{" --help)", "rdmad config example", f.bad + ":", "flag --set "}, func(s string) bool { return strings.Contains(r.stderr, s) }) {
				t.Errorf("%s: it does not say where to look: %s", r.line, r.stderr)
			}
		}
	}
}

// A daemon that cannot be reached, is another one's, of another version or nonsense, is
// said to be so in one line.
func TestUnusableDaemon(t *testing.T) {
	f := newFixture(t)
	for _, d := range []struct {
		socket string
		words  []string
	}{
		{f.dir + "/none.sock", []string{"is not running", "rdmad run -c"}},
		{f.stale(), []string{"is not running"}},
		{f.regular(), []string{"is not running"}},
		{f.dir + "/" + strings.Repeat("s", 110), []string{"is not running", "at most 107"}},
		{f.fake(failVersion), []string{"speaks 99"}},
		{f.fake(otherABI), []string{"ABI"}},
		{f.fake(noMessage), []string{"control message"}},
		{f.fake(hangsUp), []string{"closed"}},
	} {
		for path, b := range badInputs {
			if b.asks == nil || b.alone {
				continue
			}
			r := f.run(path, *b.asks+" --socket "+d.socket)
			if b.beside {
				r.oneLine(exitFailure, "there is no such file", "no daemon runs")
			} else {
				r.oneLine(exitFailure, d.words...)
			}
		}
	}
}

// What a daemon says does nothing to the terminal, whichever command shows it.
func TestDaemonThatSaysEscapes(t *testing.T) {
	f := newFixture(t)
	socket := f.fake(failEscapes)
	for path, b := range badInputs {
		if b.asks == nil {
			continue
		}
		r := f.run(path, *b.asks+" --socket "+socket)
		shown := string(r.Stdout) + r.stderr
		if path == "rdmad support-bundle" {
			shown = r.stderr // the rest is an archive
		}
		if strings.ContainsAny(shown, "\x1b\a\r") {
			t.Errorf("%s: %q", r.line, shown)
		}
	}
}

// Those who may not attach are told so in one line.
func TestDaemonOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	f := newFixture(t)
	socket := f.locked()
	for path, b := range badInputs {
		if b.asks == nil || b.alone {
			continue
		}
		r := f.runAs(nobody, path, *b.asks+" --socket "+socket)
		if b.beside {
			r.oneLine(exitFailure, "not readable for this user")
		} else {
			r.oneLine(exitFailure, "permission denied")
		}
	}
}

// Output that cannot be written makes a command fail.
func TestFullOutput(t *testing.T) {
	f := newFixture(t)
	f.startDaemon()
	for path, b := range badInputs {
		args := b.prints
		if b.asks != nil && b.silent == "" {
			args = with(*b.asks + " --socket " + f.socket)
		}
		if args == nil {
			continue
		}
		r := f.runTo("/dev/full", path, *args)
		r.oneLine(exitFailure, "no space left on device")
	}
}

// Commands that make files leave nothing half made: in a directory that is read only, and
// on a disk that is full.
func TestNothingHalfWritten(t *testing.T) {
	f := newFixture(t)
	for path, b := range badInputs {
		if b.writes == nil {
			continue
		}
		for kind, words := range map[string][]string{mountReadOnly: {"read-only file system"}, mountFull: {"no space left on device"}} {
			r := f.runMounted(kind, path, *b.writes)
			if r == nil {
				continue
			}
			r.oneLine(exitFailure, words...)
			if len(r.left) > 0 {
				t.Errorf("%s, %s: it has left %v", r.line, kind, r.left)
			}
		}
	}
}
