package observe

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unread is a client that does not read its answer before the test ends.
type unread struct {
	*httptest.ResponseRecorder
	begun chan<- struct{}
	end   <-chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	select {
	case u.begun <- struct{}{}:
	default:
	}
	<-u.end
	return u.ResponseRecorder.Write(p)
}

// However many do not read their metrics, all others get theirs.
func TestUnreadMetricsRefuseNobody(t *testing.T) {
	h := New(Options{Source: newFake(t)}).handler(false)
	var all sync.WaitGroup
	defer all.Wait()
	end := make(chan struct{})
	defer close(end)
	for range 16 {
		begun := make(chan struct{}, 1)
		all.Go(func() {
			h.ServeHTTP(unread{httptest.NewRecorder(), begun, end}, httptest.NewRequest("GET", "/metrics", nil))
		})
		select {
		case <-begun:
		case <-time.After(patient):
			t.Fatal("metrics do not come")
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}

// Metrics come compressed to those who take that, and are the same.
func TestCompressedMetrics(t *testing.T) {
	s := New(Options{Source: newFake(t)})
	s.scraped.fresh = patient // all get the same
	h := s.handler(false)
	ask := func(accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	plain := ask("").Body.Bytes()
	for accept, zipped := range map[string]bool{
		"gzip": true, "deflate, gzip;q=1.0, *;q=0.5": true, "br,GZIP": true, "gzip; q=0.1": true,
		"identity": false, "gzip;q=0": false, "gzip;q=0.0, identity": false, "xgzip": false, "gzip;q=x": false,
	} {
		w := ask(accept)
		got := w.Body.Bytes()
		if has := w.Header().Get("Content-Encoding") == "gzip"; has != zipped {
			t.Errorf("%q: compressed: %v", accept, has)
			continue
		}
		if zipped {
			z, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, plain) || len(got) == 0 {
			t.Errorf("%q: other metrics", accept)
		}
	}
}

// Series that cannot be gathered keep no others away, and the next scrape says that there were some.
func TestRefusedSeriesAreCounted(t *testing.T) {
	source := newFake(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(source))
	take := scraper(registry)
	expect := func(lines ...string) {
		t.Helper()
		got, err := take()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range lines {
			if !bytes.Contains(got.plain, []byte(want+"\n")) {
				t.Errorf("no %s in:\n%s", want, got.plain)
			}
		}
	}
	const refused = `promhttp_metric_handler_errors_total{cause="gathering"} `
	expect(refused + "0")
	source.facts.Peers = append(source.facts.Peers, Peer{Name: "c"})
	expect(`rdmad_peer_up{peer="b"} 1`, `rdmad_wakes_total{agent="0"} 7`)
	expect(refused + "1")
}
