package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/webpage"
)

// site is the page at an address of its own, which stays the same when the site is
// closed and opened again.
type site struct {
	t      *testing.T
	page   *webpage.Page
	server *http.Server
	addr   string
	source webpage.Source
	o      webpage.Options
	ended  chan error
	// wrap, if it is not nil, is put around the page when the site is opened.
	wrap func(http.Handler) http.Handler
}

// newSite serves the page with what a source says, until the test ends.
func newSite(t *testing.T, source webpage.Source, o webpage.Options) *site {
	t.Helper()
	s := &site{t: t, source: source, o: o, addr: "127.0.0.1:0"}
	s.open()
	t.Cleanup(s.close)
	return s
}

func (s *site) url() string { return "http://" + s.addr + "/" }

func (s *site) open() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr, s.page, s.ended = l.Addr().String(), webpage.New(s.source, s.o), make(chan error, 1)
	handler := http.Handler(s.page)
	if s.wrap != nil {
		handler = s.wrap(handler)
	}
	s.server = &http.Server{Handler: handler, ReadHeaderTimeout: limit}
	go func(server *http.Server, ended chan error) { ended <- server.Serve(l) }(s.server, s.ended)
}

// close stops the server as a daemon does that stops.
func (s *site) close() {
	if s.server == nil {
		return
	}
	s.page.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.t.Errorf("stop the page's server: %v", err)
		s.server.Close()
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		s.t.Error(err)
	}
	s.server = nil
}

// fake is a source of a status that the test makes.
type fake struct {
	asked  atomic.Int64
	mu     sync.Mutex
	status *status.Node
}

func (f *fake) Status(context.Context) (json.RawMessage, error) {
	f.asked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.UptimeS++
	f.status.Counters["requests_sent"] += 1000
	return json.Marshal(f.status)
}

// change changes what the source says.
func (f *fake) change(change func(*status.Node)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.status)
}

// newFake returns a status of a node with so many workers, one peer, two lanes and one
// service.
func newFake(workers int) *fake {
	s := &status.Node{
		Node: "a", Version: "0.0.0", Incarnation: "i", UptimeS: 1, PIDs: status.PIDs{Supervisor: 1, Core: 2}, Fabric: "tcp", FabricWanted: "tcp",
		Peers: []status.Peer{{Name: "b", Address: "127.0.0.1:1", State: "connected", SinceS: 1, Services: 1, Fabric: "tcp"}},
		Lanes: []status.Lane{
			{ID: 1, Domain: "default", Peer: "b", Class: "small", Direction: "out", State: "up", Slots: 4096, SlotSize: 128, Busy: 17, Requests: 5, Groups: 1},
			{ID: 2, Domain: "default", Peer: "b", Class: "large", Direction: "in", State: "down", Slots: 2048, SlotSize: 4096},
		},
		Services: []status.Service{{Domain: "default", Node: "a", Service: "s", Method: "m", ID: 1, Workers: 1}},
		Domains:  []status.Domain{{Name: "default"}},
		Counters: map[string]uint64{"requests_sent": 1, "requests_received": 0},
	}
	for i := range workers {
		s.Workers = append(s.Workers, status.Worker{
			ID: i + 1, Domain: "default", Role: "client", Name: fmt.Sprintf("worker %03d", i), PID: 10000 + 7*i, Slots: i % 40, SlotBytes: i % 40 * 128,
		})
	}
	return &fake{status: s}
}

// quoted makes a JavaScript string of text.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // no string can do that
	}
	return string(b)
}

// rows are the cells of a table of the page, a map for each row that is shown, by the
// names of the columns; lines of a cell are separated by "\n".
func (p *tab) rows(section string) []map[string]string {
	p.t.Helper()
	return eval[[]map[string]string](p, `[...document.querySelectorAll("#`+section+` tbody tr")].map((tr) => Object.fromEntries(
		[...tr.cells].map((c) => [c.dataset.column, c.querySelector(".lines") ? [...c.querySelectorAll(".line")].map((l) => l.textContent).join("\n") : c.textContent])))`)
}

// row returns the first row whose cell has the text.
func (p *tab) row(section, column, text string) map[string]string {
	p.t.Helper()
	for _, r := range p.rows(section) {
		if strings.Contains(r[column], text) {
			return r
		}
	}
	return nil
}

// samples waits until the page has shown n more samples.
func (p *tab) samples(n int) {
	p.t.Helper()
	eval[bool](p, `await new Promise((done) => {
		let left = `+fmt.Sprint(n)+`;
		const seen = new MutationObserver(() => { if (--left <= 0) { seen.disconnect(); done(true); } });
		seen.observe(document.getElementById("freshness-text"), { childList: true });
	})`)
}
