// Package webpage serves the page that shows a node at work: links, lanes,
// services, workers, errors and counters, in a browser and live.
//
// Page is an http.Handler with everything that the page needs: its files, which are
// written by hand and embedded (assets), and /events, which sends the node's status
// once a second as Server-Sent Events. The page refers to its files by relative
// addresses, so it can be mounted anywhere:
//
//	mux.Handle("/ui/", http.StripPrefix("/ui", page))
//
// The data are the JSON of status.Node, which a Source returns; this package looks
// at nothing in it, so it imports nothing of the daemon. The page computes rates and
// percentiles from successive samples.
//
// All viewers share one sampler (hub.go), which asks the source at most once per
// interval, and does not run while nobody looks. A viewer that does not read is
// disconnected, nothing is queued for it.
package webpage
