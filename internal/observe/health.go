package observe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/counters"
)

// slowCycle is how long an agent may be in one cycle before health says which it is that
// does not answer.
const slowCycle = time.Second

// unhealthy returns why the daemon is not healthy, a line for each reason: an agent that
// does not answer.
func (s *Server) unhealthy(ctx context.Context) []string {
	_, err := s.alive.get(ctx)
	if err == nil {
		return nil
	}
	reasons := []string{"not all agents answer: " + err.Error()}
	snapshot, err := s.options.Source.Snapshot()
	if err != nil {
		return append(reasons, err.Error())
	}
	for i := range snapshot.Agents {
		a := &snapshot.Agents[i]
		if age := time.Duration(snapshot.Now - a.Beat); a.State == counters.AgentWorking && age > slowCycle {
			reasons = append(reasons, fmt.Sprintf("agent %d has been in one cycle for %v", i, age.Round(time.Millisecond)))
		}
	}
	return reasons
}

// unready returns why the daemon should not be sent work.
func (s *Server) unready(ctx context.Context) []string {
	reasons := s.unhealthy(ctx)
	facts, err := s.facts.get(ctx)
	if err != nil {
		return append(reasons, "the conductor does not answer: "+err.Error())
	}
	if facts.Draining {
		reasons = append(reasons, "the node drains")
	}
	var missing []string
	for _, p := range facts.Peers {
		if !p.Connected {
			missing = append(missing, p.Name)
		}
	}
	switch n := len(facts.Peers); {
	case s.options.Peers == ReadyAll && len(missing) > 0:
		reasons = append(reasons, "not connected: "+strings.Join(missing, ", "))
	case s.options.Peers == ReadyAny && n > 0 && len(missing) == n:
		reasons = append(reasons, "no peer is connected")
	}
	return reasons
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) { judge(w, s.unhealthy(r.Context())) }
func (s *Server) readyz(w http.ResponseWriter, r *http.Request)  { judge(w, s.unready(r.Context())) }

// judge answers with ok, or with the reasons.
func judge(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, strings.Join(reasons, "\n"))
}
