// Command torture shows that nothing is lost: two nodes, worker and service
// processes, and a seeded sequence of faults, with a ledger of every call in
// memory that survives them all. docs/torture.md explains it.
//
// It is one program in several roles: the harness (run.go) starts itself again as
// workers (worker.go), services (service.go) and hostile workers
// (hostileworker.go). Workers and services use packages client and server
// alone. What they do is in books (book.go), which the harness judges at the end
// (oracle.go). A fault is one entry of a table (faults.go).
package main
