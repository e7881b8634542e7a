//go:build go1.23 && !go1.28

package shm

import _ "unsafe" // for the linkname

// goyield lets the goroutines that wait for this processor (P) run before the caller goes
// on. runtime.Gosched would do so too, but it puts the caller into the queue of all
// processors and, if one of them is idle, wakes a thread to look there: twice as dear as
// the sleep that follows. The runtime keeps this name for other programs
// (https://go.dev/issue/67401); a version of Go that is not known to do so gets Gosched.
//
//go:linkname goyield runtime.goyield
func goyield()
