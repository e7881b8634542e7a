package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/client"
)

func fetchCommand(ctx context.Context, args []string) error {
	flags := newFlags("fetch")
	var f fetch
	flags.StringVar(&f.socket, "socket", "", "the daemon's socket (default $RDMAD_SOCKET)")
	flags.StringVar(&f.node, "node", "b", "the node that serves the file")
	flags.IntVar(&f.workers, "workers", 4, "number of processes that fetch")
	flags.IntVar(&f.depth, "depth", 16, "pages that each process asks for in advance")
	flags.StringVar(&f.out, "out", "", "where to write the copy")
	_ = flags.Parse(args) // exits on errors
	if f.out == "" {
		return errors.New("where to? give --out FILE")
	}
	r, err := f.run(ctx)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	return nil
}

// fetch is one copying of a file.
type fetch struct {
	socket, node, out string
	workers, depth    int
}

// quick bounds the calls that are answered from memory.
const quick = time.Minute

// run copies the file and verifies the copy. It leaves no file behind when it
// fails.
func (f *fetch) run(ctx context.Context) (r *result, err error) {
	if f.workers < 1 || f.depth < 1 {
		return nil, fmt.Errorf("%d workers with a depth of %d: want at least 1", f.workers, f.depth)
	}
	conn, err := client.Attach(ctx, f.socket, client.Name("pagefetch"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	before, err := f.stat(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := makeFile(f.out, int64(before.size)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.out))
		}
	}()
	groups, err := countGroups(ctx, conn)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	latencies, err := f.fetchAll(ctx, before)
	if err != nil {
		return nil, err
	}
	r = &result{file: before, elapsed: time.Since(begin), workers: f.workers, depth: f.depth, latencies: latencies}
	after, err := countGroups(ctx, conn)
	if err != nil {
		return nil, err
	}
	r.requestGroup, r.answerGroup = after.since(groups)
	return r, f.verify(ctx, conn, before)
}

func (f *fetch) target(method string) string { return f.node + "/" + service + "/" + method }

func (f *fetch) stat(ctx context.Context, conn *client.Conn) (fileState, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	answer, err := conn.Call(ctx, f.target(statMethod), nil)
	if err != nil {
		return fileState{}, err
	}
	return decodeState(answer)
}

// makeFile makes an empty file of the given size. It leaves none behind when it fails.
func makeFile(name string, size int64) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	if err = errors.Join(out.Truncate(size), out.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// fetchAll runs the worker processes and waits for all. When one fails the
// others are ended.
func (f *fetch) fetchAll(ctx context.Context, file fileState) (*histogram, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		latencies *histogram
		err       error
	}
	outcomes := make(chan outcome)
	for i := range f.workers {
		t := task{Socket: f.socket, Node: f.node, Size: file.size, First: uint64(i), Step: uint64(f.workers), Depth: f.depth, Out: f.out}
		go func() {
			l, err := t.run(ctx)
			outcomes <- outcome{l, err}
		}()
	}
	all := new(histogram)
	var first error
	for range f.workers {
		o := <-outcomes
		if o.err != nil {
			cancel()
			if first == nil {
				first = o.err
			}
			continue
		}
		all.merge(o.latencies)
	}
	return all, first
}

// run runs a worker process for the task.
func (t *task) run(ctx context.Context) (*histogram, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "fetch-worker")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("worker process %d: %w", t.First+1, err)
	}
	latencies := new(histogram)
	if err := json.Unmarshal(output.Bytes(), latencies); err != nil {
		return nil, fmt.Errorf("worker process %d: %w", t.First+1, err)
	}
	return latencies, nil
}

// verify compares the copy with the original, which must not have changed in the
// meantime.
func (f *fetch) verify(ctx context.Context, conn *client.Conn, before fileState) error {
	want, err := conn.Call(ctx, f.target(sumMethod), nil)
	if err != nil {
		return err
	}
	now, err := f.stat(ctx, conn)
	if err != nil {
		return err
	}
	if now != before {
		return fmt.Errorf("the file changed while it was copied: it had %v, now it has %v", before, now)
	}
	out, err := os.Open(f.out)
	if err != nil {
		return err
	}
	defer out.Close()
	got, err := sumOf(ctx, out)
	if err != nil {
		return err
	}
	if !bytes.Equal(got[:], want) {
		return fmt.Errorf("the copy has SHA-256 %x, the original %x", got, want)
	}
	return nil
}
