package main

import (
	"context"
	"io"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// Service and caller find each other in whatever order they and the daemons start, and again when the daemons are others.
func TestGreeter(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	a, b := daemontest.Pair(t, "")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	go func() { done <- serve(ctx, b.Socket) }()
	if err := b.Start(); err != nil {
		t.Error(err)
	}
	greets := func(when string) {
		t.Helper()
		daemontest.Eventually(t, "the service answers "+when, func() error { return call(t.Context(), a.Socket, "b", "world") })
	}
	greets("at first")
	for _, n := range []*daemontest.Node{a, b} {
		if err := n.Restart(); err != nil {
			t.Error(err)
		}
		greets("again")
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("a service that was told to stop: %v", err)
	}
}

// The code in docs/grpc.md is that of this program.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("the page has %d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(source), b[1]) {
			t.Errorf("main.go does not have this:\n%s", b[1])
		}
	}
}
