//go:build profile

package main

import (
	"log"
	"os"
	"runtime/pprof"
	"time"
)

// profileTime is how long a process is profiled, from its start.
const profileTime = 6 * time.Second

// A program that was built with the tag "profile" writes the CPU profile of its first
// seconds into the folder RDMAD_PROFILE; see "make profile".
func init() {
	dir := os.Getenv("RDMAD_PROFILE")
	if dir == "" {
		return
	}
	f, err := os.CreateTemp(dir, "*.pprof")
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		log.Fatalf("rdmad: profile: %v", err)
	}
	time.AfterFunc(profileTime, func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			log.Fatalf("rdmad: profile: %v", err)
		}
	})
}
