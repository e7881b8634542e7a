package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdmad/rdmad/client"
)

// task is what a worker process has to do: fetch the pages first, first+step ...
// of a file. It reads it from its standard input as JSON.
type task struct {
	Socket string `json:"socket"`
	Node   string `json:"node"`
	Size   uint64 `json:"size"`
	First  uint64 `json:"first"`
	Step   uint64 `json:"step"`
	// Depth is how many pages to ask for before the first has come.
	Depth int    `json:"depth"`
	Out   string `json:"out"`
}

// workerCommand is the body of a worker process. It writes its latencies to
// standard output as JSON.
func workerCommand(ctx context.Context, _ []string) error {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	out, err := os.OpenFile(t.Out, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	latencies, err := t.fetch(ctx, out)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(latencies)
}

// asked is a page that has been asked for.
type asked struct {
	page   uint64
	future *client.Future
	begin  time.Time
}

// fetch fetches the task's pages and writes them to where they belong.
func (t *task) fetch(ctx context.Context, out *os.File) (*histogram, error) {
	conn, err := client.Attach(ctx, t.Socket, client.Name("pagefetch"))
	if err != nil {
		return nil, err
	}
	// Requests that are still on their way when an error ends this function
	// get their outcome here.
	defer conn.Close()
	// Looked up once: a Method's calls are the quick ones.
	read, err := conn.Method(ctx, t.Node+"/"+service+"/"+readMethod)
	if err != nil {
		return nil, err
	}
	file := fileState{size: t.Size}
	latencies := new(histogram)
	var request [indexSize]byte
	var queue []asked // oldest first
	for next := t.First; next < file.pages() || len(queue) > 0; {
		if next < file.pages() && len(queue) < t.Depth {
			// Go copies the request into shared memory: the buffer is free
			// again when it returns.
			binary.LittleEndian.PutUint64(request[:], next)
			begin := time.Now()
			f, err := read.Go(ctx, request[:])
			if err != nil {
				return nil, fmt.Errorf("page %d: %w", next, err)
			}
			queue = append(queue, asked{next, f, begin})
			next += t.Step
			continue
		}
		a := queue[0]
		queue = queue[1:]
		data, err := a.future.Wait(ctx)
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", a.page, err)
		}
		latencies.add(time.Since(a.begin))
		a.future.Release()
		if want := file.length(a.page); len(data) != want {
			return nil, fmt.Errorf("page %d has %d bytes instead of %d: the file changed its size while it was copied", a.page, len(data), want)
		}
		if _, err := out.WriteAt(data, int64(a.page)*pageSize); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}
