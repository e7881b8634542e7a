package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
)

// perfSide is a running side of a measurement.
type perfSide struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *bufio.Reader
	said   string
}

func (f *fixture) startSide(ctx context.Context, args string) *perfSide {
	f.t.Helper()
	cmd := f.command(ctx, "rdmad perf", args)
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	return &perfSide{t: f.t, cmd: cmd, stdout: bufio.NewReader(out), stderr: bufio.NewReader(errs)}
}

// until reads lines until one has the words, and returns it.
func (s *perfSide) until(in *bufio.Reader, words string) string {
	s.t.Helper()
	for {
		line, err := in.ReadString('\n')
		s.said += line
		if strings.Contains(line, words) {
			return line
		}
		if err != nil {
			s.t.Fatalf("%v: %v without %q:\n%s", s.cmd.Args[1:], err, words, s.said)
		}
	}
}

var listens = regexp.MustCompile(`:(\d+)\n$`)

// startPair starts a server and a client that measure for very long, and returns when they do.
func (f *fixture) startPair(ctx context.Context, tool string) (server, client *perfSide) {
	f.t.Helper()
	name, _, _ := strings.Cut(tool, " ")
	server = f.startSide(ctx, name+" --listen 127.0.0.1 -p 0")
	port := listens.FindStringSubmatch(server.until(server.stderr, "waiting for a client"))
	if port == nil {
		f.t.Fatalf("no port: %s", server.said)
	}
	client = f.startSide(ctx, tool+" -D 1h 127.0.0.1 -p "+port[1])
	server.until(server.stdout, "other side: provider tcp")
	client.until(client.stdout, "other side: provider tcp")
	return server, client
}

// fails waits for the end of a side, which must be that of a measurement that failed.
func (s *perfSide) fails(t *testing.T) {
	t.Helper()
	_ = s.cmd.Wait() // its status is looked at
	if status := s.cmd.ProcessState.ExitCode(); status != exitFailure {
		t.Errorf("status %d, want %d:\n%s", status, exitFailure, s.said)
	}
}

// A side that is killed is reported by the other one, whichever it is and however it waits.
// How soon is a matter of the kernel, which ends the connections of a dead process at once.
func TestPerfKilled(t *testing.T) {
	f := newFixture(t)
	for _, tool := range []string{"pingpong -e", "pingpong --op read -e", "pingpong --op write", "blast -e", "blast --op write -e", "blast --op read",
		"blast -e -b -q 3"} {
		for _, victim := range []string{"server", "client"} {
			t.Run(tool+"/"+victim, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				f := *f
				f.t = t
				dead, alive := f.startPair(ctx, tool)
				if victim == "client" {
					dead, alive = alive, dead
				}
				if err := dead.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				alive.until(alive.stderr, "the other side is gone")
				alive.fails(t)
				_ = dead.cmd.Wait()
			})
		}
	}
}

// The clients of atomics are processes, each of which is missed by all others.
func TestPerfAtomicsProcesses(t *testing.T) {
	f := newFixture(t)
	r := f.run("rdmad perf atomics", "--self -e -n 50 --clients 3 --connections 2 --json")
	var got struct {
		Results []struct {
			Clients, Connections, Increments uint64
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Status != 0 || len(got.Results) != 2 {
		t.Fatalf("status %d, %v:\n%s%s", r.Status, err, r.Stdout, r.stderr)
	}
	for _, row := range got.Results {
		if row.Clients != 3 || row.Connections != 2 || row.Increments != 300 {
			t.Errorf("%+v", row)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := f.startSide(ctx, "atomics --listen 127.0.0.1 -p 0")
	port := listens.FindStringSubmatch(server.until(server.stderr, "waiting for a client"))
	client := f.startSide(ctx, "atomics --clients 3 -e -n 80000000 127.0.0.1 -p "+port[1])
	client.until(client.stdout, "other side: provider tcp")
	members := children(t, client.cmd.Process.Pid)
	if len(members) != 3 {
		t.Fatalf("the client has the processes %v", members)
	}
	if err := syscall.Kill(members[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	client.until(client.stderr, "the other side is gone")
	server.until(server.stderr, "the other side is gone")
	client.fails(t)
	server.fails(t)
	for _, pid := range members {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("the client has left process %d", pid)
		}
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// A client without a server says what to do about it.
func TestPerfWithoutServer(t *testing.T) {
	f := newFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // the port is nobody's
	for _, tool := range []string{"pingpong", "rc"} {
		r := f.run("rdmad perf "+tool, "127.0.0.1 --port "+port)
		r.oneLine(exitFailure, "connection refused (no server listens there: start it first, on that machine, with: rdmad perf "+tool+")")
	}
}

// The JSON has perftest's keys, and what was really used.
func TestPerfJSON(t *testing.T) {
	f := newFixture(t)
	for tool, keys := range map[string][]string{
		"pingpong": {"MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9", "cpu_client", "cpu_server"},
		"blast":    {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate", "cpu_client", "cpu_server"},
	} {
		r := f.run("rdmad perf "+tool, "--self -e -n 20 -s 1KiB --verify --json")
		var got struct {
			Info struct {
				Client struct{ Provider, Address, Device, Transport string }
			} `json:"test_info"`
			Results []map[string]any
		}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Status != 0 || len(got.Results) != 1 {
			t.Fatalf("%s: status %d, %v:\n%s%s", tool, r.Status, err, r.Stdout, r.stderr)
		}
		for _, key := range keys {
			if _, ok := got.Results[0][key]; !ok {
				t.Errorf("%s: no key %q in %s", tool, key, r.Stdout)
			}
		}
		if c := got.Info.Client; c.Provider != "tcp" || c.Address != "127.0.0.1" || c.Device == "" || c.Transport != "TCP" {
			t.Errorf("%s: it has used %+v", tool, c)
		}
	}
}

// A threshold that is missed has a status of its own, one that is reached has none, and a plot
// is there in both cases.
func TestPerfThresholdsAndPlots(t *testing.T) {
	f := newFixture(t)
	for args, want := range map[string]int{
		"pingpong --max-p99 1ns": exitMissed, "pingpong --max-p99 1h": 0,
		"blast --min-bw 1e12": exitMissed, "blast --min-msgrate 1e12": exitMissed, "blast --min-bw 1e-9 --min-msgrate 1e-9": 0,
	} {
		tool, args, _ := strings.Cut(args, " ")
		file := filepath.Join(f.files, "plot.svg")
		r := f.run("rdmad perf "+tool, args+" --self -e -n 20 --plot "+file)
		if r.Status != want {
			t.Errorf("%s: status %d, want %d:\n%s", r.line, r.Status, want, r.stderr)
		}
		if want == exitMissed {
			r.oneLine(exitMissed, "threshold missed", strings.Fields(args)[0])
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "<svg") || !strings.Contains(string(text), tool) {
			t.Errorf("%s: the plot: %v, %.100s", r.line, err, text)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// Sides with different tools refuse each other, both with the status for that.
func TestPerfMismatch(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := f.startSide(ctx, "blast --listen 127.0.0.1 -p 0")
	port := listens.FindStringSubmatch(server.until(server.stderr, "waiting for a client"))
	r := f.run("rdmad perf pingpong", "127.0.0.1 -p "+port[1])
	r.oneLine(exitUsage, `tool "blast"`, `"pingpong"`)
	server.until(server.stderr, `tool "pingpong"`)
	_ = server.cmd.Wait()
	if status := server.cmd.ProcessState.ExitCode(); status != exitUsage {
		t.Errorf("the server: status %d, want %d", status, exitUsage)
	}
}

// Every operation over two processes and libfabric, where writes have no order: all that is not
// refused brings what was sent.
func TestPerfOverLibfabric(t *testing.T) {
	if !libfabric.Built {
		t.Skip("this build has no libfabric: apt-get install libfabric-dev, go test -tags libfabric")
	}
	f := newFixture(t)
	for _, provider := range []string{"tcp;ofi_rxm", "shm"} {
		for _, tool := range []string{"pingpong", "blast"} {
			for _, op := range []string{"send", "write", "write-imm", "read"} {
				r := f.run("rdmad perf "+tool, "--self -e -n 50 -s 5000 --verify --op "+op+" --fabric libfabric --provider "+provider)
				if tool == "pingpong" && op == "write" {
					r.oneLine(exitUsage, "write-imm")
				} else if r.Status != 0 || !strings.Contains(r.Stdout, "provider libfabric "+provider) {
					t.Errorf("%s: status %d:\n%s%s", r.line, r.Status, r.Stdout, r.stderr)
				}
			}
		}
	}
}

// Who is interrupted says so, whatever the end of the two sides looked like.
func TestPerfInterrupted(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		server, client := f.startPair(ctx, "pingpong")
		if err := client.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		client.until(client.stderr, "interrupt signal received")
		client.fails(t)
		_ = server.cmd.Wait()
	}
}

// A server has no result, and takes no flag that is about one: a threshold given to it would never be missed.
func TestPerfServerHasNoResult(t *testing.T) {
	f := newFixture(t)
	for args, flag := range map[string]string{
		"blast --min-bw 1000": "--min-bw", "blast --min-msgrate 1": "--min-msgrate", "pingpong --max-p99 20us": "--max-p99",
		"pingpong --plot " + f.dir + "/plot.svg": "--plot", "rc --json": "--json", "randomfill --json": "--json", "atomics --min-msgrate 0.5": "--min-msgrate",
	} {
		f.run("rdmad perf", args+" -p 0").oneLine(exitUsage, flag+": a server has no result", "HOST", "--self")
	}
}
