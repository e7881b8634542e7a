package observe

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrape is what /metrics answers: bytes that all who ask within freshMetrics have in common,
// so that many who ask, and who read slowly, cost no more than one, and none has to be refused.
type scrape struct {
	contentType string
	plain       []byte
	// zipped is the same, compressed when somebody first wants it so.
	zipped func() []byte
}

// recorder is the http.ResponseWriter that gets a scrape.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// scraper returns what makes scrapes, in the text format, of what a registry gathers. What it refuses is left out, and
// counted in a metric of the registry: the rest is worth having, and a series that is missing would be noticed by nobody.
func scraper(registry *prometheus.Registry) func() (*scrape, error) {
	h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, ErrorHandling: promhttp.ContinueOnError, Registry: registry})
	return func() (*scrape, error) {
		ask, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", http.NoBody)
		if err != nil {
			return nil, err
		}
		r := recorder{header: http.Header{}, code: http.StatusOK}
		h.ServeHTTP(&r, ask)
		if r.code != http.StatusOK {
			return nil, errors.New(strings.TrimSpace(r.body.String()))
		}
		plain := r.body.Bytes()
		return &scrape{contentType: r.header.Get("Content-Type"), plain: plain, zipped: sync.OnceValue(func() []byte { return zip(plain) })}, nil
	}
}

// zip compresses p.
func zip(p []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(p) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	latest, err := s.scraped.get(r.Context())
	if err != nil {
		http.Error(w, fmt.Sprintf("metrics are not to be had: %v", err), http.StatusServiceUnavailable)
		return
	}
	h, body := w.Header(), latest.plain
	h.Set("Content-Type", latest.contentType)
	h.Set("Vary", "Accept-Encoding")
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = latest.zipped()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// takesGzip reports whether values of Accept-Encoding have gzip, and not with the weight 0.
func takesGzip(values []string) bool {
	for e := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, weight, _ := strings.Cut(e, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, q, given := strings.Cut(weight, "=")
		f, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !given || err == nil && f > 0
	}
	return false
}
