package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// inspector looks into the rings of a node: what is not free there, and whose it is. It is
// attached as a client that makes no calls. Its methods belong to one goroutine.
type inspector struct {
	node    *node
	session *attach.Session

	mu    sync.Mutex
	rings map[uint16]*slots.Ring
}

// attach attaches if the inspector is not, and gets all lanes.
func (x *inspector) attach(ctx context.Context) error {
	if x.session != nil {
		select {
		case <-x.session.Done():
			x.close()
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	rings := map[uint16]*slots.Ring{}
	s, err := attach.Open(ctx, x.node.socket, attach.Hello{Role: attach.RoleClient, Name: "inspector"}, attach.Events{
		Lane: func(l attach.Lane, r *slots.Ring) {
			x.mu.Lock()
			defer x.mu.Unlock()
			rings[l.ID] = r
		},
	})
	if err != nil {
		return err
	}
	for _, to := range []string{"a", "b"} {
		target := &attach.Target{Node: to, Service: "load", Method: "work"}
		if _, err := s.Ask(ctx, &attach.Message{Type: attach.TypeResolve, Target: target}); err != nil {
			_ = s.Close()
			s.Release()
			return err
		}
	}
	x.session = s
	x.mu.Lock()
	x.rings = rings
	x.mu.Unlock()
	return nil
}

// close detaches.
func (x *inspector) close() {
	if x.session == nil {
		return
	}
	x.mu.Lock()
	x.rings = nil
	x.mu.Unlock()
	_ = x.session.Close()
	x.session.Release()
	x.session = nil
}

// free returns nil when no slot is of the owner; of anybody, if the owner is 0.
func (x *inspector) free(ctx context.Context, owner int) error {
	if err := x.attach(ctx); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	taken, waiting, example := 0, 0, ""
	for id, r := range x.rings {
		n := r.Geometry().Slots
		for i := 0; i < n; {
			w, run := r.Word(i), 1
			mine := w.State() != slots.Free && (owner == 0 || w.Owner() == owner)
			if mine && w.State() == slots.Taken {
				// All of the run waits with its first slot.
				run = min(max(w.Run(), 1), n-i)
				waiting += run
			} else if mine {
				if taken++; example == "" {
					example = fmt.Sprintf("slot %d of lane %d is %v", i, id, w)
				}
			}
			i += run
		}
	}
	switch {
	case taken > 0:
		return fmt.Errorf("%d slots are taken, such as: %s", taken, example)
	case waiting > 0:
		return fmt.Errorf("%w: %d slots", errOnTheirWay, waiting)
	}
	return nil
}

// errOnTheirWay is returned by free when only slots are taken whose requests the answering
// side has: they are kept until it has answered, whoever is dead.
var errOnTheirWay = errors.New("slots of requests that have no answer yet")

// quiet returns nil when a node has nothing under way: no request in a journal, and
// nothing held back for whatever reason the status has a number for.
func quiet(ctx context.Context, n *node) error {
	raw, err := n.rawStatus(ctx)
	if err != nil {
		return err
	}
	var s struct {
		Lanes   []map[string]any `json:"lanes"`
		Workers []map[string]any `json:"workers"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	for _, l := range s.Lanes {
		for _, key := range []string{"busy", "journal", "quarantine", "quarantined", "suspended", "held", "orphans", "spilled"} {
			if v, ok := l[key].(float64); ok && v != 0 {
				return fmt.Errorf("node %s: lane %v of domain %v (%v %v): %s is %v", n.name, l["id"], l["domain"], l["direction"], l["class"], key, v)
			}
		}
	}
	for _, w := range s.Workers {
		if v, ok := w["slots"].(float64); ok && v != 0 {
			return fmt.Errorf("node %s: worker %v has %v slots", n.name, w["name"], v)
		}
	}
	return nil
}

// usage is what a process has.
type usage struct {
	// Anon is the memory of its own in bytes, FDs how many descriptors it has.
	Anon int64 `json:"anon"`
	FDs  int   `json:"fds"`
}

// usageOf looks at a process.
func usageOf(pid int) (u usage, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return u, err
			}
			u.Anon = kib << 10
		}
	}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	u.FDs = len(fds)
	return u, err
}

// usages are those of both supervisors and cores, in this order: a's, b's.
type usages [4]usage

// usageNames are what tables call them.
var usageNames = [len(usages{})]string{"supervisor a", "core a", "supervisor b", "core b"}

// measure looks at the daemons.
func measure(ctx context.Context, nodes []*node) (u usages, err error) {
	for i, n := range nodes {
		core, err := n.core(ctx)
		if err != nil {
			return u, err
		}
		for j, pid := range []int{n.process.PID(), core} {
			if u[2*i+j], err = usageOf(pid); err != nil {
				return u, err
			}
		}
	}
	return u, nil
}

// How much more the daemons may have at the end than at the start: the memory that Go
// keeps for minutes after busier times, above all after hostile workers, each of which
// costs buffers whenever it attaches; and what a second domain's lanes take.
const (
	moreMemory = 128 << 20
	moreFDs    = 40
)

// grown says what has grown too much.
func (u usages) grown(start usages) (problems []string) {
	for i := range u {
		if u[i].Anon > 2*start[i].Anon+moreMemory {
			problems = append(problems, fmt.Sprintf("%s has %d MiB, %d at the start", usageNames[i], u[i].Anon>>20, start[i].Anon>>20))
		}
		if u[i].FDs > start[i].FDs+moreFDs {
			problems = append(problems, fmt.Sprintf("%s has %d descriptors, %d at the start", usageNames[i], u[i].FDs, start[i].FDs))
		}
	}
	return problems
}

// quantile returns the value below which the share q of some times is.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}
