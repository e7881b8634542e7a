package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// perfServer is a server of "rdmad perf" that waits for its client.
type perfServer struct {
	cmd  *exec.Cmd
	port string
}

// startPerfServer starts a server for a tool, and waits until it can be connected to. It ends
// with its client or with the test.
func startPerfServer(t *testing.T, tool string) *perfServer {
	t.Helper()
	s := &perfServer{cmd: rdmad(t, "perf", tool, "--listen", "127.0.0.1", "-p", "0")}
	out, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server says %q: %v", line, err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), " for a client on ")
	if _, s.port, err = net.SplitHostPort(address); err != nil {
		t.Fatalf("the server says %q: %v", line, err)
	}
	return s
}

// Two processes fill pages, connect and count; both end well, and the client's result says what
// was done.
func TestPerfTools(t *testing.T) {
	for tool, c := range map[string]struct {
		args string
		want map[string]string
	}{
		"randomfill": {"-s 4097 --pages 50 --region-size 1MiB -n 3", map[string]string{"rounds": "3", "pages": "50", "ordered_writes": "true"}},
		"rc":         {"-s 4097", map[string]string{"size": "4097"}},
		"atomics":    {"--clients 3 -n 200", nil},
	} {
		t.Run(tool, func(t *testing.T) {
			s := startPerfServer(t, tool)
			args := append([]string{"perf", tool, "127.0.0.1", "-p", s.port, "--json"}, strings.Fields(c.args)...)
			r := run(t, rdmad(t, args...))
			if err := s.cmd.Wait(); err != nil || r.status != 0 {
				t.Fatalf("server: %v, client: %d\n%s", err, r.status, r.errOut)
			}
			var result map[string]any
			if err := json.Unmarshal([]byte(r.out), &result); err != nil {
				t.Fatalf("%v:\n%s", err, r.out)
			}
			for key, want := range c.want {
				if got := fmt.Sprint(result[key]); got != want {
					t.Errorf("%s is %s, want %s", key, got, want)
				}
			}
			switch tool {
			case "rc":
				if steps, ok := result["steps"].([]any); !ok || len(steps) != 6 {
					t.Errorf("it has done %v", result["steps"])
				}
			case "atomics":
				for _, row := range result["results"].([]any) {
					row := row.(map[string]any)
					if row["final"].(float64) != row["start"].(float64)+600 || row["increments"].(float64) != 600 {
						t.Errorf("%v", row)
					}
				}
			}
		})
	}
}

// What is printed for people names what was used before it says what was found.
func TestPerfToolsForPeople(t *testing.T) {
	for args, words := range map[string][]string{
		"randomfill -s 100": {"this side:  provider tcp", "no other was touched", "BW average[MB/sec]"},
		"rc -s 100":         {"this side:  provider tcp", "TCP_NODELAY", "by both sides"},
		"atomics -n 50":     {"this side:  provider tcp", "FETCH_AND_ADD", "CMP_AND_SWAP", "each once", "whole round trips"},
	} {
		r := run(t, rdmad(t, append([]string{"perf"}, strings.Fields(args+" --self")...)...))
		r.check(t, args, 0, words...)
	}
}

// A threshold that cannot be reached ends a run with status 3, after its result.
func TestPerfToolsThresholds(t *testing.T) {
	for _, args := range []string{
		"randomfill --self -s 4KiB --min-bw 1e12", "randomfill --self -s 4KiB --max-p99 1ns",
		"atomics --self -n 20 --max-p99 1ns", "atomics --self -n 20 --min-msgrate 1e9",
	} {
		r := run(t, rdmad(t, append([]string{"perf"}, strings.Fields(args)...)...))
		if r.status != 3 || !strings.Contains(r.errOut, "threshold missed: --m") || !strings.Contains(r.out, "#bytes") {
			t.Errorf("%s: status %d\n%s%s", args, r.status, r.out, r.errOut)
		}
	}
}

// A client whose server is killed ends with status 1, and says that it is gone.
func TestPerfToolsKilledServer(t *testing.T) {
	for tool, args := range map[string]string{"randomfill": "-s 64KiB -n 1000000", "atomics": "-n 10000000"} {
		s := startPerfServer(t, tool)
		cmd := rdmad(t, append([]string{"perf", tool, "127.0.0.1", "-p", s.port}, strings.Fields(args)...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errOut strings.Builder
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// It says what is used when it is connected.
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // killed
		_ = cmd.Wait()   // the status tells
		if status := cmd.ProcessState.ExitCode(); status != 1 || !strings.Contains(errOut.String(), "the other side") {
			t.Errorf("%s: status %d: %s", tool, status, errOut.String())
		}
	}
}
