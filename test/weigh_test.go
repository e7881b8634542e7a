package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
)

// idlerRole attaches, says so, and does nothing.
func idlerRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	for errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil { // hundreds may attach at once, a few of which are welcomed at a time
		conn, err = client.Attach(ctx, args.Socket)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := say.Encode(conn.Node()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// weight is what processes cost.
type weight struct {
	// anon is resident private memory, shmem what the files in memory have of which the
	// processes hold descriptors, each counted once; both in bytes.
	anon, shmem  int
	fds, threads int
	// switches are context switches so far.
	switches int
}

func (w weight) memory() int { return w.anon + w.shmem }

func (w weight) String() string {
	return fmt.Sprintf("%d KiB private, %d KiB shared, %d descriptors, %d threads", w.anon>>10, w.shmem>>10, w.fds, w.threads)
}

// weigh adds up what processes cost.
func weigh(t *testing.T, pids ...int) (w weight) {
	t.Helper()
	files := map[uint64]bool{}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			t.Fatal(err)
		}
		w.anon += statusField(t, status, "RssAnon") << 10
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			t.Fatal(err)
		}
		w.fds += len(fds)
		for _, fd := range fds {
			name := filepath.Join(dir, "fd", fd.Name())
			var st unix.Stat_t
			if to, err := os.Readlink(name); err != nil || !strings.HasPrefix(to, "/memfd:") || unix.Stat(name, &st) != nil || files[st.Ino] {
				continue
			}
			files[st.Ino] = true
			w.shmem += int(st.Blocks) * 512
		}
		tasks, err := filepath.Glob(filepath.Join(dir, "task", "*"))
		if err != nil {
			t.Fatal(err)
		}
		w.threads += len(tasks)
		for _, task := range tasks {
			status, err := os.ReadFile(filepath.Join(task, "status"))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread has ended meanwhile
			}
			if err != nil {
				t.Fatal(err)
			}
			w.switches += statusField(t, status, "voluntary_ctxt_switches") + statusField(t, status, "nonvoluntary_ctxt_switches")
		}
	}
	return w
}

// statusField returns a number of what a status file of /proc says.
func statusField(t *testing.T, status []byte, name string) int {
	t.Helper()
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", name, status)
	return 0
}

// daemonPIDs returns the processes of a node.
func (c *cluster) daemonPIDs(name string) []int {
	c.t.Helper()
	p, err := c.nodes[name].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	return []int{p.Supervisor, p.Core}
}
