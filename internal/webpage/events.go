package webpage

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

// hello is the first event of a stream.
type hello struct {
	// Edition tells the files of the page apart from those of another version.
	Edition    string `json:"edition"`
	IntervalMS int64  `json:"interval_ms"`
	PatienceMS int64  `json:"patience_ms"`
}

// crossSite reports that a browser asks on behalf of another site's page. Such a page
// could not read the answer, but take the places of viewers.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

// network returns the kind of network by which a request came.
func network(r *http.Request) string {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return a.Network()
	}
	return ""
}

// serveEvents sends events until the viewer or the page goes away.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	if crossSite(r) {
		http.Error(w, "events are for the page of this daemon only", http.StatusForbidden)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		h.Set("Content-Type", "text/event-stream")
		return
	}
	v, err := p.hub.join(network(r))
	if err != nil {
		h.Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer p.hub.leave(v)
	if p.viewing != nil {
		p.viewing(r)
	}
	out := eventWriter{w: w, control: http.NewResponseController(w), patience: p.patience}
	if err := out.limit(); err != nil {
		http.Error(w, "the server cannot end a connection that is not read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer out.unlimit()
	h.Set("Content-Type", "text/event-stream")
	for err = out.hello(p.hub.interval); err == nil; {
		select {
		case s := <-v.news:
			err = out.sample(s)
		case <-v.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
	// The viewer has gone or does not read: there is nobody to tell.
}

// eventWriter writes events to one viewer.
type eventWriter struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// hello sends the first event.
func (e *eventWriter) hello(interval time.Duration) error {
	text, err := json.Marshal(hello{edition, interval.Milliseconds(), e.patience.Milliseconds()})
	if err != nil {
		return err
	}
	return e.send("hello", text)
}

// sample sends a sample with its time, and its age, because the viewer's clock may be
// another: {"at":..., "age_ms":..., "status":...} or, as the event "trouble", with
// "error" instead of the status.
func (e *eventWriter) sample(s *sample) error {
	head := fmt.Appendf(nil, `{"at":%q,"age_ms":%.1f,`, s.at.UTC().Format(time.RFC3339Nano), float64(time.Since(s.at))/float64(time.Millisecond))
	if s.err == nil {
		return e.send("sample", head, []byte(`"status":`), s.status, []byte("}"))
	}
	text, err := json.Marshal(s.err.Error())
	if err != nil {
		return err
	}
	return e.send("trouble", head, []byte(`"error":`), text, []byte("}"))
}

// send writes an event, whose data have no line breaks, and waits until the kernel has
// it, but not for longer than the viewer may take.
func (e *eventWriter) send(event string, data ...[]byte) error {
	if err := e.limit(); err != nil {
		return err
	}
	parts := append([][]byte{[]byte("event: " + event + "\ndata: ")}, data...)
	for _, part := range append(parts, []byte("\n\n")) {
		if _, err := e.w.Write(part); err != nil {
			return err
		}
	}
	return e.control.Flush()
}

// limit starts the time that the viewer has to read.
func (e *eventWriter) limit() error {
	return e.control.SetWriteDeadline(time.Now().Add(e.patience))
}

// unlimit ends it: the connection may live on. If it does not, that is as well.
func (e *eventWriter) unlimit() { _ = e.control.SetWriteDeadline(time.Time{}) }
