package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
)

func TestFrames(t *testing.T) {
	var wire bytes.Buffer
	rests := []string{"", "x", strings.Repeat("y", maxFrame)}
	for i, rest := range rests {
		if err := writeFrame(&wire, byte('a'+i), []byte(rest)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range rests {
		kind, rest, err := readFrame(&wire)
		if err != nil || kind != byte('a'+i) || string(rest) != want {
			t.Errorf("frame %d: kind %q, %d bytes, %v", i, kind, len(rest), err)
		}
	}
	if _, _, err := readFrame(&wire); err != io.EOF {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

func TestFrameLimit(t *testing.T) {
	var wire bytes.Buffer
	if err := writeFrame(&wire, 'a', make([]byte, maxFrame+1)); err == nil || wire.Len() != 0 {
		t.Errorf("a frame above the limit: %v, %d bytes written", err, wire.Len())
	}
	long := []byte{'a', 0xff, 0xff, 0xff, 0xff}
	if _, _, err := readFrame(bytes.NewReader(long)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("reading a frame above the limit: %v", err)
	}
}

func TestFrameCutOff(t *testing.T) {
	var wire bytes.Buffer
	if err := writeFrame(&wire, 'a', []byte("rest")); err != nil {
		t.Fatal(err)
	}
	whole := wire.Bytes()
	for n := 1; n < len(whole); n++ {
		if _, _, err := readFrame(bytes.NewReader(whole[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d bytes of a frame: %v, want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestFrameWriter(t *testing.T) {
	var wire bytes.Buffer
	var lock sync.Mutex
	text := bytes.Repeat([]byte("0123456789"), piece/4)
	if n, err := (frameWriter{&lock, &wire, frameStdout}).Write(text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	var got []byte
	for {
		kind, rest, err := readFrame(&wire)
		if err == io.EOF {
			break
		}
		if err != nil || kind != frameStdout || len(rest) > piece {
			t.Fatalf("kind %q, %d bytes, %v", kind, len(rest), err)
		}
		got = append(got, rest...)
	}
	if !bytes.Equal(got, text) {
		t.Errorf("%d bytes came out of %d, or others", len(got), len(text))
	}
}

// Whatever comes, what is read is what a writer would have written.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{'o', 0, 0, 0, 2, 'h', 'i', 'x', 0, 0, 0, 0})
	f.Add([]byte{'o', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		var again bytes.Buffer
		for {
			kind, rest, err := readFrame(r)
			if err != nil {
				break
			}
			if err := writeFrame(&again, kind, rest); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(wire, again.Bytes()) {
			t.Errorf("read %x as %x", wire, again.Bytes())
		}
	})
}
