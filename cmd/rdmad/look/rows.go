package look

import (
	"fmt"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

// peerRows is the table of peers.
func peerRows(peers []status.Peer) *table.Table {
	t := table.New("PEER", "ADDRESS", "STATE", "SINCE", "SERVICES", "ENCRYPTED", "CERTIFICATE", "EXPIRES", "ERROR")
	for _, p := range peers {
		encrypted, name, expires := "no", "", ""
		if p.TLS != nil {
			encrypted, name, expires = p.TLS.Version, p.TLS.Peer.Name, table.Date(p.TLS.Peer.NotAfter)
		} else if p.State == "down" {
			encrypted = ""
		}
		t.Row(p.Name, p.Address, p.State, table.Seconds(p.SinceS), p.Services, encrypted, name, expires, p.Error)
	}
	return t
}

// serviceRows is the table of services, as the given node knows them.
func serviceRows(node string, services []status.Service) *table.Table {
	t := table.New("SERVICE", "METHOD", "NODE", "STATE", "DOMAIN", "PROCESSES", "ID")
	for _, v := range services {
		processes := ""
		if v.Node == node {
			processes = fmt.Sprint(v.Workers)
		}
		t.Row(v.Service, v.Method, v.Node, v.State, v.Domain, processes, v.ID)
	}
	return t
}

// workerRows is the table of workers.
func workerRows(workers []status.Worker) *table.Table {
	t := table.New("WORKER", "ROLE", "NAME", "PID", "UID", "DOMAIN", "SLOTS", "SLOT BYTES", "REFUSED")
	for _, w := range workers {
		t.Row(w.ID, w.Role, w.Name, w.PID, w.UID, w.Domain, w.Slots, w.SlotBytes, w.OverLimit)
	}
	return t
}

// wrongRows is the table of workers that have done wrong or do not take their answers.
func wrongRows(workers []status.Worker) *table.Table {
	t := table.New("WORKER", "NAME", "DOMAIN", "OFFENCES", "SPILLED", "SPILLED BYTES", "UNREAD")
	for _, w := range workers {
		if w.Offences+w.SpilledAnswers+w.SpilledBytes+uint64(w.SpillUnread) > 0 {
			t.Row(w.ID, w.Name, w.Domain, w.Offences, w.SpilledAnswers, w.SpilledBytes, w.SpillUnread)
		}
	}
	return t
}

// laneRows is the table of lanes.
func laneRows(lanes []status.Lane) *table.Table {
	t := table.New("LANE", "DIRECTION", "PEER", "DOMAIN", "CLASS", "NUMBER", "STATE", "SLOTS", "BYTES/SLOT", "BUSY", "REQUESTS", "REQ/GROUP", "USERS", "QUOTA", "SHARE")
	for _, l := range lanes {
		t.Row(l.ID, l.Direction, l.Peer, l.Domain, l.Class, l.Number, l.State, l.Slots, l.SlotSize, l.Busy, l.Requests, perGroup(l.Requests, l.Groups),
			l.Users, table.Bound(l.Quota), table.Bound(l.Share))
	}
	return t
}

// perGroup formats the mean size of groups.
func perGroup(requests, groups uint64) string {
	if groups == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", float64(requests)/float64(groups))
}

// pathRows is the table of what the fabric says of lanes.
func pathRows(lanes []status.Lane) *table.Table {
	t := table.New("LANE", "PATH")
	for _, l := range lanes {
		if l.Path != "" {
			t.Row(l.ID, l.Path)
		}
	}
	return t
}
