package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
)

// The bounds of what whoever connects can make the daemon spend.
const (
	// maxConns is how many connections a listener has at a time; see room.
	maxConns = 64
	// maxHeader is how large the header of a request may be, in bytes.
	maxHeader = 16 << 10
	// A request must come within readTimeout, and be answered within shortTimeout, which
	// is longer than patience, or if the answer can be long within writeTimeout, but for
	// profiles and for what the page sends for long. idleTimeout is how long a connection
	// may wait for its next request.
	readTimeout  = 5 * time.Second
	shortTimeout = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = 30 * time.Second
	// maxProfile is the longest profile, in seconds. One is made at a time.
	maxProfile = 120
	// fresh is how long a status, metrics, facts and the life of agents are good for; patience is
	// how long agents, and the conductor, may take to answer.
	freshStatus  = time.Second
	freshMetrics = 250 * time.Millisecond
	freshFacts   = freshMetrics
	patience     = 2 * time.Second
)

// Options is what a Server serves.
type Options struct {
	// Source is the daemon.
	Source Source
	// Page gets all requests that nothing else is for; nil: there is a list of what there
	// is. Its answers have no time limit but those that it sets.
	Page http.Handler
	// Hosts returns the names with a dot by which requests may name this host, "*" for any;
	// nil: none. It is called for each request with such a name.
	Hosts func() []string
	// Log gets what goes wrong with connections and requests.
	Log zerolog.Logger
	// Peers says what readiness takes: ReadyNone, ReadyAny or ReadyAll.
	Peers string
}

// What peers must be connected for a node to be ready.
const (
	ReadyNone = "none"
	ReadyAny  = "any"
	ReadyAll  = "all"
)

// Server answers requests by HTTP. Its methods are safe for concurrent use.
type Server struct {
	options Options
	status  shared[json.RawMessage]
	alive   shared[struct{}]
	facts   shared[Facts]
	scraped shared[*scrape]
	// profiling is full while a profile is made.
	profiling chan struct{}
	with      *http.Server // with profiles
	without   *http.Server
	cancel    context.CancelFunc
}

// New returns a server that serves nobody yet.
func New(o Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{options: o, profiling: make(chan struct{}, 1), cancel: cancel}
	s.status = shared[json.RawMessage]{fresh: freshStatus, patience: patience, ask: func() (json.RawMessage, error) { return o.Source.Status(ctx) }}
	s.alive = shared[struct{}]{fresh: freshStatus, patience: patience, ask: func() (struct{}, error) {
		o.Source.Alive(ctx)
		return struct{}{}, nil
	}}
	s.facts = shared[Facts]{fresh: freshFacts, patience: patience, ask: func() (Facts, error) { return o.Source.Facts(), nil }}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(o.Source), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.scraped = shared[*scrape]{fresh: freshMetrics, patience: patience, ask: scraper(registry)}
	server := func(profiles bool) *http.Server {
		return &http.Server{
			// A client that does not read is not waited for, whatever it asks: profiles and events
			// have more time than WriteTimeout, and give it to themselves.
			Handler: brisk(guarded(s.handler(profiles), o.Hosts)), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
			BaseContext: func(net.Listener) context.Context { return ctx },
			ErrorLog:    log.New(troubles{o.Log}, "", 0),
			ConnState:   note,
			ConnContext: withConn,
		}
	}
	s.with, s.without = server(true), server(false)
	return s
}

// troubles makes events of what package http has to say, which would be written to standard error otherwise, past the daemon's log.
type troubles struct{ log zerolog.Logger }

// Write implements io.Writer for one message, which may have several lines: a panic comes with its stack.
func (t troubles) Write(message []byte) (int, error) {
	event.ObserveTrouble.On(&t.log).Str("error", strings.TrimSpace(string(message))).Msg("serving HTTP")
	return len(message), nil
}

// Serve answers requests on l, and closes it, until Close; then it returns nil. profiles:
// /debug/pprof is among them.
func (s *Server) Serve(l net.Listener, profiles bool) error {
	server := s.without
	if profiles {
		server = s.with
	}
	if err := server.Serve(newRoom(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends all connections, and makes Serve return.
func (s *Server) Close() error {
	s.cancel()
	return errors.Join(s.with.Close(), s.without.Close())
}

// handler returns what answers requests.
func (s *Server) handler(profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /statusz", s.statusz)
	if profiles {
		s.profiles(mux)
	} else {
		mux.HandleFunc("GET /debug/pprof/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "profiles are to be had by the Unix socket only, unless observe.pprof is true", http.StatusForbidden)
		})
	}
	if page := s.options.Page; page != nil {
		mux.Handle("/", page)
	} else {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "rdmad\n\n/metrics\n/healthz\n/readyz\n/statusz\n/debug/pprof/\n")
		})
	}
	return mux
}

// Status is the status that /statusz shows, which is at most a second old.
func (s *Server) Status(ctx context.Context) (json.RawMessage, error) {
	status, err := s.status.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("the agents do not answer: %w", err)
	}
	return status, nil
}

func (s *Server) statusz(w http.ResponseWriter, r *http.Request) {
	status, err := s.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(status)
}

// brisk gives answers that are not long shortTimeout instead of the server's WriteTimeout.
func brisk(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p != "/metrics" && p != "/statusz" && !strings.HasPrefix(p, "/debug/pprof/") {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(shortTimeout)) // a connection that cannot have one has the server's
		}
		h.ServeHTTP(w, r)
	})
}

// profiles adds what package pprof has, one at a time.
func (s *Server) profiles(mux *http.ServeMux) {
	add := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := checkSeconds(pattern, r.FormValue("seconds")); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case s.profiling <- struct{}{}:
				defer func() { <-s.profiling }()
			default:
				http.Error(w, "another profile is being made", http.StatusTooManyRequests)
				return
			}
			Keep(r)
			h(w, r)
		})
	}
	add("/debug/pprof/", pprof.Index)
	add("/debug/pprof/cmdline", pprof.Cmdline)
	add(cpuProfile, pprof.Profile)
	add("/debug/pprof/symbol", pprof.Symbol)
	add("/debug/pprof/trace", pprof.Trace)
}

// cpuProfile is the path of the profile of what the processors do.
const cpuProfile = "/debug/pprof/profile"

// checkSeconds refuses how long a profile is to be made for: too long, or what package pprof makes its default of, which the
// one who asks does not expect. It takes integers for cpuProfile.
func checkSeconds(path, seconds string) error {
	if seconds == "" {
		return nil
	}
	if path == cpuProfile {
		if k, err := strconv.Atoi(seconds); err != nil || k < 1 || k > maxProfile {
			return fmt.Errorf("seconds must be an integer from 1 to %d", maxProfile)
		}
		return nil
	}
	if k, err := strconv.ParseFloat(seconds, 64); err != nil || !(k >= 0 && k <= maxProfile) {
		return fmt.Errorf("seconds must be at most %d", maxProfile)
	}
	return nil
}
