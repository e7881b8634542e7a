// Package counters is what a daemon counts, in a file that anybody who may read it can
// look at, also when the daemon hangs or has died.
//
// The file lies next to the daemon's socket and is mapped by the core. Its layout is
// fixed and has a version: a head that says whose it is, the counters of the node as a
// whole, and rows of agents, lanes and services. A row belongs to one agent, whose thread
// alone writes it, with ordinary 64-bit stores: no locked instruction, no lock, and no
// cache line that another agent writes. A value is therefore whole, but values that
// belong together may be of different moments.
//
// The structs of table.go are the layout: each field is a counter, and its tags are the
// counter's name, unit and meaning. Status, metrics, "rdmad counters" and docs/metrics.md
// are all made from them.
//
// The number of rows is fixed when the file is made. Lanes and services for which there
// is no row are counted in a row of their agent that is called "other".
//
// Memory beyond the mapping is not touched: the whole file is allocated before it is
// mapped, so a disk that is full is an error of Create. Whoever may write to the file,
// which is the daemon's user alone, can make it shorter and so kill the daemon; so he
// can with a signal.
//
// A [Reader] trusts no byte of the file: it reads a copy, checks that and uses that.
package counters
