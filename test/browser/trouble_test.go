package browser

import (
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/status"
)

// trouble makes a status of what can be wrong.
func trouble(s *status.Node) {
	s.Fabric, s.FabricWanted, s.FallbackReason = "tcp", "auto", "no RDMA device has an active port"
	s.Draining = true
	s.TLS = &status.Certificate{Name: "rdmad://production/node/a", NotAfter: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}
	s.Peers = append(s.Peers, status.Peer{Name: "c", Address: "[2001:db8::1]:7171", State: "down", SinceS: 90000, Error: "dial tcp [2001:db8::1]:7171: connect: connection refused"},
		status.Peer{Name: strings.Repeat("long-name-", 6), Address: "10.0.0.1:7171", State: "draining", SinceS: 61, Fabric: "verbs"})
	s.Lanes[0].Busy, s.Lanes[0].Share, s.Lanes[0].Users = 3900, 41, 60
	s.Refusals = []status.Refusal{{From: "10.0.0.9", Reason: "certificate-expired", Text: "the certificate of node d has expired on 2026-01-02: renew it with rdmad certs", Count: 123456, AgeS: 12}}
	s.Workers[0].Offences, s.Workers[1].SpillUnread, s.Workers[1].SpilledAnswers = 3, 5<<20, 12
	s.Workers[2].Name, s.Workers[3].Name = strings.Repeat("unbroken", 8), ""
	s.Domains[0].Damages = 2
	s.Bulk = []status.Bulk{{Domain: "default", Peer: "b", Out: "up", In: "down", Exports: 3, ExportBytes: 3 << 20, Imports: 1, Queued: 2}}
	for name, n := range map[string]uint64{"requests_received": 1 << 60, "request_bytes": 1 << 62, "protocol_errors": 3} {
		s.Counters[name] = n
	}
}
