package otelx_test

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/otelx"
	"github.com/rdmad/rdmad/server"
)

// No handler is none, also with spans: a server refuses it, where its callers would all get a panic.
func TestNoHandler(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Handle("t", "none", otelx.Handler("t", "none", nil)); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("a handler: %v", err)
	}
	if err := s.HandleStream("t", "none", otelx.StreamHandler("t", "none", nil)); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("a handler of streams: %v", err)
	}
}
