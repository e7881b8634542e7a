//go:build !go1.23 || go1.28

package shm

import "runtime"

// goyield lets other goroutines run before the caller goes on.
func goyield() { runtime.Gosched() }
