// Package observe is what a daemon shows by HTTP: /metrics, /healthz, /readyz, /statusz,
// /debug/pprof and a page for people.
//
// A [Server] serves any number of listeners. Whoever asks, and how often, costs the
// daemon's agents next to nothing: metrics are read from the counters that agents keep
// anyway, and the two questions that agents must answer, for the status and whether they
// live, are asked by one goroutine each, at most once in a time, on behalf of all who
// want to know. An agent that hangs makes these fail in time, with a reason, and metrics
// go on.
//
// Connections, sizes and times are bounded. There is no authentication: whoever can
// connect can read, and nothing can be changed.
package observe
