package webpage

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Source is where the page's data come from.
type Source interface {
	// Status returns the node's state as JSON, the same as "rdmad status --json". The
	// page calls it from one goroutine at a time, and at most once per interval. It
	// must return soon after ctx has ended. What an error says is shown to viewers.
	Status(ctx context.Context) (json.RawMessage, error)
}

// SourceFunc is a function that is a Source.
type SourceFunc func(ctx context.Context) (json.RawMessage, error)

// Status calls the function.
func (f SourceFunc) Status(ctx context.Context) (json.RawMessage, error) { return f(ctx) }

// Defaults of Options.
const (
	DefaultInterval = time.Second
	DefaultViewers  = 16
	DefaultPatience = 5 * time.Second
)

// Options are what of a page can be chosen.
type Options struct {
	// Interval is the least time between two questions to the source. Zero:
	// DefaultInterval.
	Interval time.Duration
	// Viewers is how many may look at a time by a kind of network, tcp or unix, so that
	// those who come by one take nothing from those by the other; more get status 503.
	// Zero: DefaultViewers.
	Viewers int
	// Patience is how long the source may take to answer, and how long a viewer may
	// take to read what it is sent. Zero: DefaultPatience.
	Patience time.Duration
	// Viewing, if it is not nil, is called when a request becomes a viewer's.
	Viewing func(*http.Request)
}

// Page serves the page. It is safe for concurrent use.
type Page struct {
	hub      *hub
	patience time.Duration
	viewing  func(*http.Request)
}

// New returns a page that shows what the source says. The caller must Close it.
func New(source Source, o Options) *Page {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Viewers == 0 {
		o.Viewers = DefaultViewers
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	return &Page{hub: newHub(source, o), patience: o.Patience, viewing: o.Viewing}
}

// Close ends the connections of all viewers, who will try again, and returns when the
// source is not asked any more. Requests for events get status 503 from then on. Call
// it before http.Server.Shutdown, which waits for connections to end.
func (p *Page) Close() { p.hub.close() }

// policy is the Content-Security-Policy of the page: its own files and nothing else, no
// scripts or styles in the text, no HTML made of strings, and no other page around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'none'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP answers GET and HEAD for the page, its files and /events.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page is only for reading", http.StatusMethodNotAllowed)
		return
	}
	name := r.URL.Path
	if len(name) > 0 && name[0] == '/' {
		name = name[1:]
	}
	switch name {
	case "":
		serveAsset(w, r, "index.html")
	case "events":
		p.serveEvents(w, r)
	default:
		serveAsset(w, r, name)
	}
}
