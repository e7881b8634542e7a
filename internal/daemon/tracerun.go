package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// traceRun is a trace that a tool has asked for: it sees to it that agents and peers follow
// requests, fetches what they have found, and ends it. One goroutine does all that.
type traceRun struct {
	conductor *conductor
	spec      attach.Trace
	watch     agent.TraceWatch
	// own is the only domain that the tool may look into; "" for all.
	own    string
	end    time.Time
	ctx    context.Context
	cancel context.CancelFunc
	uid    uint32 // of the tool

	// armed says when which session was last told to follow requests.
	armed map[armedLink]armedAt
	// asked are the goroutines that ask peers.
	asked sync.WaitGroup
	// methods are those that the trace is about, by domain, as of when the conductor last said that something has changed, which
	// was known. Peers may have very many.
	methods map[*domain]map[agent.RemoteMethod]bool
	known   chan struct{}

	mu sync.Mutex
	// ready are traces that nobody has fetched, over why there will be no more. changed
	// is closed and replaced when either changes.
	ready   []status.Trace
	over    string
	changed chan struct{}
}

type armedLink struct{ domain, node string }

type armedAt struct {
	session *session
	at      time.Time
}

const (
	// traceStep is how often a trace that is under way is looked at.
	traceStep = 10 * time.Millisecond
	// traceFor is for how long peers are asked to follow requests, and traceAgain when
	// they are asked again.
	traceFor   = 30 * time.Second
	traceAgain = 10 * time.Second
	// traceAsk is how long a peer may take to answer.
	traceAsk = 2 * time.Second
	// tracePoll is how long a tool waits for the next trace at a time.
	tracePoll = 5 * time.Second
	// traceBatch is how many traces are sent to a tool in a message at most.
	traceBatch = 24
	// traceBacklog is how many traces are kept for a tool that does not fetch them, with
	// those that are under way: more requests are not followed for it.
	traceBacklog = 256
)

// trace answers a tool that begins to follow requests, or waits for what was found.
func (c *conductor) trace(w *worker, m *attach.Message) (*attach.Message, error) {
	if w.role != attach.RoleTool {
		return nil, fmt.Errorf("%w: only tools follow requests", attach.ErrInvalid)
	}
	if m.Trace != nil {
		if err := c.beginTrace(w, m.Trace); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	r := w.trace
	c.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("%w: no trace was begun", attach.ErrInvalid)
	}
	data, err := json.Marshal(r.next())
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return &attach.Message{Type: attach.TypeTraced, TracedJSON: data}, nil
}

// beginTrace starts the trace of a tool.
func (c *conductor) beginTrace(w *worker, spec *attach.Trace) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", attach.ErrInvalid, err)
	}
	r := &traceRun{conductor: c, uid: w.uid, spec: *spec, armed: make(map[armedLink]armedAt), changed: make(chan struct{})}
	// Who runs the daemon may look at everybody's requests, others at those of their domain.
	if w.uid != 0 && int(w.uid) != os.Getuid() {
		r.own = w.domain.name
	}
	if spec.Domain != "" && (c.domainNamed(spec.Domain) == nil || r.own != "" && r.own != spec.Domain) {
		return fmt.Errorf("%w: no domain %q whose requests you may follow", attach.ErrPermission, printable.Text(spec.Domain))
	}
	r.watch.Every, r.watch.Since = uint64(max(1, spec.Every)), shm.Nanotime()
	r.watch.Left.Store(int64(spec.Count))
	r.watch.Room.Store(traceBacklog)
	timeout := time.Duration(spec.TimeoutMillis) * time.Millisecond
	r.end = time.Now().Add(timeout)
	r.ctx, r.cancel = context.WithCancel(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.attached[w]; !ok {
		r.cancel()
		return fmt.Errorf("%w: the tool has gone", attach.ErrClosed)
	}
	if w.trace != nil || len(c.traces) >= agent.MaxWatches {
		r.cancel()
		return fmt.Errorf("%w: %d traces are under way on node %s, at most %d, and one for each tool", attach.ErrLimit, len(c.traces), c.node, agent.MaxWatches)
	}
	if r.own != "" && c.othersTrace(w.uid) {
		r.cancel()
		return fmt.Errorf("%w: of users other than the daemon's each may have one trace on node %s at a time, and all together %d", attach.ErrLimit, c.node, agent.MaxWatches-1)
	}
	if !c.spawn(r.run) {
		r.cancel()
		return fmt.Errorf("%w: node %s is stopping", attach.ErrClosed, c.node)
	}
	w.trace = r
	c.traces[r] = struct{}{}
	return nil
}

// othersTrace reports whether a user without rights of their own may begin no trace: one is
// left for who runs the daemon. mu is held.
func (c *conductor) othersTrace(uid uint32) bool {
	foreign := 0
	for r := range c.traces {
		if r.own != "" {
			foreign++
		}
		if r.own != "" && r.uid == uid {
			return true
		}
	}
	return foreign >= agent.MaxWatches-1
}

// endTrace ends the trace of a tool that has gone; mu is held.
func (w *worker) endTrace() {
	if w.trace != nil {
		w.trace.cancel()
	}
}

// next waits for something to tell, for a while, and returns it.
func (r *traceRun) next() *status.Traced {
	late := time.NewTimer(tracePoll)
	defer late.Stop()
	for waiting := true; ; {
		r.mu.Lock()
		changed := r.changed
		if len(r.ready) > 0 || r.over != "" || !waiting {
			n := min(len(r.ready), traceBatch)
			t := &status.Traced{Traces: append([]status.Trace{}, r.ready[:n]...), Seen: r.watch.Seen.Load(), Skipped: r.watch.Skipped.Load()}
			if r.ready = r.ready[n:]; len(r.ready) == 0 {
				t.Over = r.over
			}
			r.mu.Unlock()
			r.watch.Room.Add(int64(n))
			return t
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			waiting = false
		case <-r.ctx.Done():
			waiting = false
		}
	}
}

// put tells who waits in next.
func (r *traceRun) put(over string, traces ...status.Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = append(r.ready, traces...)
	if over != "" {
		r.over = over
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// run is the life of the trace.
func (r *traceRun) run() {
	c := r.conductor
	defer func() {
		c.mu.Lock()
		delete(c.traces, r)
		c.mu.Unlock()
	}()
	r.arm(true)
	tick := time.NewTicker(traceStep)
	defer tick.Stop()
	over := ""
	for over == "" && r.ctx.Err() == nil {
		all := r.watch.Left.Load() <= 0 // before the look: then none comes after it
		switch open := r.step(false); {
		case all && open == 0:
			over = status.TraceCount
		case time.Now().After(r.end):
			over = status.TraceTimeout
		default:
			select {
			case <-tick.C:
			case <-r.ctx.Done():
			}
			r.arm(false)
		}
	}
	r.watch.Left.Store(0) // no more of them
	r.step(true)
	r.asked.Wait()
	r.leave()
	r.put(over)
}

// domains returns those in which requests are followed.
func (r *traceRun) domains() (list []*domain) {
	for _, d := range r.conductor.allDomains() {
		if (r.own == "" || d.name == r.own) && (r.spec.Domain == "" || d.name == r.spec.Domain) {
			list = append(list, d)
		}
	}
	return list
}

// step has the agents follow what is wanted now, and takes what they have found; all:
// also what is not over. It returns how many requests are still under way.
func (r *traceRun) step(all bool) (open int) {
	for _, d := range r.domains() {
		var found []agent.FoundTrace
		scope := r.scope(d)
		d.onTracer(true, func(t *agent.Tracer) {
			k := t.Place(&r.watch)
			if k < 0 {
				if k = t.Place(nil); k < 0 || all {
					return
				}
			}
			t.Scopes[k] = scope
			t.Tell()
			t.Look()
			t.Harvest(k, all, func(e *agent.SentTrace) { found = append(found, t.Found(e)) })
			open += t.Waits[k]
		})
		r.conclude(d, found)
	}
	return open
}

// leave makes the agents follow nothing more for this trace.
func (r *traceRun) leave() {
	for _, d := range r.domains() {
		d.onTracer(false, func(t *agent.Tracer) {
			if k := t.Place(&r.watch); k >= 0 {
				t.Harvest(k, true, func(*agent.SentTrace) {})
				t.Scopes[k] = nil
				t.Tell()
			}
		})
	}
	r.cancel()
}

// onTracer calls f on the agent's thread with the domain's tracer, which is made if there
// is none and it is wanted, and goes if it is not needed afterwards.
func (d *domain) onTracer(wanted bool, f func(*agent.Tracer)) {
	if !d.use() {
		return
	}
	defer d.using.RUnlock()
	if v := d.view; !v.WithTracer(nil, f) && wanted {
		v.WithTracer(agent.NewTracer(v), f) // made here, so that the agent need not
	}
}

// scope returns which requests of the domain the trace is about, as of now.
func (r *traceRun) scope(d *domain) *agent.TraceScope {
	s := &agent.TraceScope{Watch: &r.watch, Name: r.spec.Worker, PID: -1}
	if pid, err := strconv.Atoi(r.spec.Worker); err == nil {
		s.PID = pid
	}
	if r.spec.Service == "" && r.spec.Method == "" {
		return s
	}
	c := r.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.known != c.changed {
		r.methods, r.known = make(map[*domain]map[agent.RemoteMethod]bool), c.changed
	}
	if r.methods[d] == nil {
		r.methods[d] = r.methodsOf(d)
	}
	s.Methods = r.methods[d]
	return s
}

// methodsOf returns the methods of the domain that the trace is about; conductor.mu is held.
func (r *traceRun) methodsOf(d *domain) map[agent.RemoteMethod]bool {
	wanted := func(k methodKey) bool {
		return (r.spec.Service == "" || k.service == r.spec.Service) && (r.spec.Method == "" || k.method == r.spec.Method)
	}
	list := make(map[agent.RemoteMethod]bool)
	for k, m := range d.methods {
		if wanted(k) {
			list[agent.RemoteMethod{ID: m.id}] = true
		}
	}
	for _, l := range r.conductor.links {
		for k, e := range l.directory[d.name] {
			if wanted(k) {
				list[agent.RemoteMethod{Node: l.name, ID: e.ID}] = true
			}
		}
	}
	return list
}
