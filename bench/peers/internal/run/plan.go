// Package run carries a comparison out: it starts the systems, has the clients of one after the other do the
// same work, round after round, and ends everything again.
package run

import (
	"slices"

	"github.com/rdmad/rdmad/bench/peers/internal/system"
)

// Setting is which processors a comparison uses.
type Setting string

// The settings.
const (
	// Free uses all.
	Free Setting = "free"
	// Pinned keeps every process on the same one.
	Pinned Setting = "pinned"
)

// Workload is what the clients of a system do.
type Workload struct {
	// Name identifies it in tables and results, and Text says what it is.
	Name, Text string
	// Op is the operation, and Size the payload of an echo, a page or a post.
	Op   system.Op
	Size int
	// Clients is the number of processes, and Depth how many requests each has outstanding.
	Clients, Depth int
	// Longer is how many times as long as the others it is measured, and warmed up; 0 for once.
	Longer int
	// Idle is set if the clients make no calls, and all systems are looked at together.
	Idle bool
	// Systems do it.
	Systems []string
}

// Who does what.
var (
	// callers are the systems with calls between two nodes, or the next best to it.
	callers = []string{"tcp", "tcp-coalesced", "unix", "grpc", "grpc-unix", "nats", "rdmad", "rdmad-local"}
	// inCore are those and rdmad with its service in the core.
	inCore = append(slices.Clone(callers), "rdmad-embedded")
	// grouped are those and rdmad with groups of one message.
	grouped = append(slices.Clone(inCore), "rdmad-single")
	// movers move large answers, and regions are a way of rdmad to do so.
	movers = []string{"tcp", "unix", "grpc", "grpc-unix", "nats", "rdmad", "rdmad-region", "rdmad-local"}
	// posters have messages without answers.
	posters = []string{"tcp-coalesced", "nats", "rdmad", "rdmad-local"}
	// fanned are those that may have very many clients.
	fanned = []string{"tcp-coalesced", "grpc", "nats", "rdmad", "rdmad-local"}
)

// fanLonger is Longer of those with up to 256 processes: all of these, so that they can be compared. In a quarter
// of a second each of 256 processes has two milliseconds of two processors, which is its start and its end.
const fanLonger = 4

// Workloads are all, in the order of tables.
var Workloads = []Workload{
	{Name: "call", Text: "64 B echo, one process, one outstanding", Op: system.Echo, Size: 64, Clients: 1, Depth: 1, Systems: inCore},
	{Name: "storm-64", Text: "64 B echo, 8 processes, 64 outstanding each", Op: system.Echo, Size: 64, Clients: 8, Depth: 64, Systems: grouped},
	{Name: "storm-1k", Text: "1 KiB echo, 8 processes, 64 outstanding each", Op: system.Echo, Size: 1 << 10, Clients: 8, Depth: 64, Systems: callers},
	{Name: "storm-8k", Text: "8 KiB echo, 8 processes, 64 outstanding each", Op: system.Echo, Size: 8 << 10, Clients: 8, Depth: 64, Systems: callers},
	{Name: "callers", Text: "64 B echo, 8 processes, one outstanding each", Op: system.Echo, Size: 64, Clients: 8, Depth: 1, Systems: inCore},
	{Name: "pages-1", Text: "8 KiB answers, 8 processes, one outstanding each", Op: system.Page, Size: 8 << 10, Clients: 8, Depth: 1, Systems: inCore},
	{Name: "pages-64", Text: "8 KiB answers, 8 processes, 8 outstanding each", Op: system.Page, Size: 8 << 10, Clients: 8, Depth: 8, Systems: inCore},
	{Name: "bulk-64k", Text: "64 KiB answers, one process, 4 outstanding", Op: system.Page, Size: 64 << 10, Clients: 1, Depth: 4, Systems: movers},
	{Name: "bulk-1m", Text: "1 MiB answers, one process, 4 outstanding", Op: system.Page, Size: 1 << 20, Clients: 1, Depth: 4, Systems: movers},
	{Name: "bulk-64m", Text: "64 MiB answers, one process, 2 outstanding", Op: system.Page, Size: 64 << 20, Clients: 1, Depth: 2, Systems: without(movers, "nats")},
	{Name: "oneway", Text: "64 B without answers, 8 processes, measured where they arrive", Op: system.Post, Size: 64, Clients: 8, Depth: 1, Systems: posters},
	{Name: "fan-1", Text: "64 B echo, one process, 8 outstanding", Op: system.Echo, Size: 64, Clients: 1, Depth: 8, Longer: fanLonger, Systems: fanned},
	{Name: "fan-8", Text: "64 B echo, 8 processes, 8 outstanding each", Op: system.Echo, Size: 64, Clients: 8, Depth: 8, Longer: fanLonger, Systems: fanned},
	{Name: "fan-64", Text: "64 B echo, 64 processes, 8 outstanding each", Op: system.Echo, Size: 64, Clients: 64, Depth: 8, Longer: fanLonger, Systems: fanned},
	{Name: "fan-256", Text: "64 B echo, 256 processes, 8 outstanding each", Op: system.Echo, Size: 64, Clients: 256, Depth: 8, Longer: fanLonger, Systems: fanned},
	{Name: "idle", Text: "8 connected processes that do nothing", Op: system.Echo, Size: 64, Clients: crewSize, Depth: 1, Idle: true, Systems: callers},
}

// crewSize is how many client processes of a system live all the time. Workloads with more start the
// others for themselves.
const crewSize = 8

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
}
