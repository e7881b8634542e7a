// Package test has no code, only tests: it builds the rdmad command once and
// runs it as its users do, as real daemons with real worker processes.
//
// The first four tests are the programs of the system that rdmad descends from:
// shared memory alone (sharedmemory_test.go), one server and one client
// (simple_test.go), many threads (goroutines_test.go) and many processes
// (processes_test.go). The others are about what goes wrong, and about the
// command line.
//
// A worker process is this test binary started again with a role; see
// roles_test.go. Nothing is waited for by sleeping: conditions are polled, with
// a limit (poll_test.go).
//
// The flag -rdmad.messages sets how many messages the test of many processes
// sends: go test ./test -run TestProcesses -rdmad.messages 2000000
package test
