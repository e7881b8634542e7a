package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const defaultMessages = 200_000

var (
	// messages is how many messages TestProcesses sends.
	messages = flag.Int("rdmad.messages", defaultMessages, "messages of the test of many processes; others scale with it")
	// largestStyle and largest are the sizes of the largest messages.
	largestStyle = flag.Int("rdmad.most", 4<<20, "size in bytes of the largest messages of TestEveryStyle")
	largest      = flag.Int("rdmad.largest", 1<<30, "size in bytes of the messages of TestLargest; it takes twice the memory")
	// fabricName and connect are what the nodes of all tests use.
	fabricName = flag.String("rdmad.fabric", "tcp", "the fabric of the nodes: tcp, verbs or libfabric")
	provider   = flag.String("rdmad.libfabric", "", "with libfabric, the provider of the nodes")
	connect    = flag.String("rdmad.connect", "", "with verbs, how queue pairs are connected: oob or rdmacm")
	// faultBuild and coreKills are for the tests of RDMA's faults.
	faultBuild = flag.Bool("rdmad.faults", false, "the programs of -rdmad.programs are built with the tag faultpoints")
	coreKills  = flag.Int("rdmad.corekills", 20, "how often TestRDMACoresKilled kills the core of each node")
	// prebuilt saves building the programs where there is no Go.
	prebuilt = flag.String("rdmad.programs", "", "a directory with rdmad and pageserver, instead of building them")
)

// programs are the commands that TestMain has built or was given.
var programs struct{ dir, rdmad, pageserver, self string }

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (status int) {
	flag.DurationVar(&limit, "rdmad.limit", limit, "how long a test waits for anything")
	flag.Parse()
	dir, err := os.MkdirTemp("", "rdmad-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status = m.Run()
	// What still ends, because it is told to by another process, gets its time.
	for end := time.Now().Add(limit); status == 0; {
		err, left := goleak.Find(), children(os.Getpid())
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err, "child processes are left:", left)
			status = 1
		}
	}
	return status
}

// build builds the programs, unless they were given, with the race detector if the
// tests have it. Other users must be able to run them, so that tests can.
func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	programs.self = filepath.Join(dir, "worker")
	if err := os.WriteFile(programs.self, binary, 0o755); err != nil {
		return err
	}
	programs.dir = dir
	if *prebuilt != "" {
		if dir, err = filepath.Abs(*prebuilt); err != nil {
			return err
		}
	}
	programs.rdmad, programs.pageserver = filepath.Join(dir, "rdmad"), filepath.Join(dir, "pageserver")
	if *prebuilt != "" {
		return nil
	}
	args := []string{"build", "-o", dir}
	if *fabricName == "verbs" || *fabricName == "libfabric" {
		args = append(args, "-tags", *fabricName)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	out, err := exec.Command("go", append(args, "../cmd/rdmad", "../examples/pageserver")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// children returns the child processes of a process that have not been waited
// for.
func children(parent int) []int {
	var found []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, name := range stats {
		fields := statFields(name)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// statFields returns the fields after the name in a stat file of /proc; nil if
// the process is gone.
func statFields(name string) []string {
	stat, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
}
