package slots_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// twoSpilled is a spill with two answers.
func twoSpilled() (spill []byte, answers []slots.Spilled) {
	answers = []slots.Spilled{
		{Lane: 7, Run: slots.Run{Index: 0x123, Len: 2, Ticket: 0x1122334455}, Payload: []byte("nine byte"),
			Header: slots.Header{Ticket: 0x1122334455, Length: 9, Run: 2, Kind: slots.KindAnswer, Cookie: 5}},
		{Lane: 4095, Run: slots.Run{Index: 65535, Len: 1, Ticket: 1}, Payload: []byte{},
			Header: slots.Header{Ticket: 1, Run: 1, Kind: slots.KindAnswer}},
	}
	spill = slots.NewSpill(100)
	for i := range answers {
		spill = slots.AppendSpilled(spill, &answers[i])
	}
	return spill, answers
}

// The bytes of a spill are those of docs/layout.md.
func TestSpillLayout(t *testing.T) {
	spill, answers := twoSpilled()
	if len(spill) != 16+96+80 || !bytes.Equal(spill[:8], []byte("RDMADSPL")) {
		t.Fatalf("%d bytes: %q", len(spill), spill[:8])
	}
	if got, want := hex.EncodeToString(spill[8:32]), "04000400"+"02000000"+"0700"+"0200"+"23010000"+"5544332211000000"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var h slots.Header
	if !h.Decode(spill[32:96]) || h != answers[0].Header || string(spill[96:105]) != "nine byte" || !bytes.Equal(spill[105:112], make([]byte, 7)) {
		t.Errorf("the answer: %q", spill[32:112])
	}
	got, err := slots.ParseSpill(spill)
	if err != nil || !reflect.DeepEqual(got, answers) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseSpillRefuses(t *testing.T) {
	for what, change := range map[string]func(b []byte) []byte{
		"nothing":          func([]byte) []byte { return nil },
		"no magic":         func(b []byte) []byte { b[0]++; return b },
		"cut":              func(b []byte) []byte { return b[:len(b)-1] },
		"cut in the first": func(b []byte) []byte { return b[:100] },
		"many":             func(b []byte) []byte { b[12]++; return b },
		"very many":        func(b []byte) []byte { b[15] = 0xff; return b },
		"lane":             func(b []byte) []byte { b[17] = 0x10; return b },
		"long":             func(b []byte) []byte { b[43] = 0xff; return b },
		"header":           func(b []byte) []byte { b[77] = 1; return b },
	} {
		spill, _ := twoSpilled()
		if got, err := slots.ParseSpill(change(spill)); !errors.Is(err, slots.ErrProtocol) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	spill, _ := twoSpilled()
	spill[10] = 99
	var v *shm.VersionError
	if _, err := slots.ParseSpill(spill); !errors.As(err, &v) {
		t.Errorf("another version: %v", err)
	}
}

func FuzzParseSpill(f *testing.F) {
	spill, _ := twoSpilled()
	f.Add(spill)
	f.Add(spill[:16])
	f.Fuzz(func(t *testing.T, data []byte) {
		answers, err := slots.ParseSpill(data)
		if err != nil {
			return
		}
		for _, a := range answers {
			if len(a.Payload) != int(a.Header.Length) || a.Lane >= slots.MaxLanes || a.Run.Index < 0 || a.Run.Len < 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}

// Of a worker that acquires an answer and a daemon that moves it, one has it.
func TestAcquireOrMove(t *testing.T) {
	r, _ := newRing(t, small)
	acquired, moved := 0, 0
	for range 5000 {
		u, err := r.Claim(3, 2)
		if err != nil || !r.Publish(u, 3) || !r.Take(u.Index, r.Word(u.Index)) || !r.Answer(u.Index, r.Word(u.Index).With(slots.Pub)) {
			t.Fatal("no answer")
		}
		w := r.Word(u.Index)
		var wg sync.WaitGroup
		var a, b bool
		wg.Go(func() { a = r.Acquire(u, 3) })
		wg.Go(func() { b = r.Move(u.Index, w) })
		wg.Wait()
		if a == b {
			t.Fatalf("acquired %v, moved %v", a, b)
		}
		if a {
			acquired++
		} else {
			moved++
		}
		if r.Acquire(u, 3) || r.Move(u.Index, w) || r.Answered(u, 3) {
			t.Fatal("twice")
		}
		r.Free(u.Index, u.Len)
	}
	t.Logf("acquired %d, moved %d", acquired, moved)
}

// Example of a worker that finds an answer, and a daemon that has moved another.
func ExampleRing_Acquire() {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, _ := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	answered := func() slots.Run {
		u, _ := r.Claim(1, 1)
		r.Publish(u, 1)
		w := r.Word(u.Index)
		r.Take(u.Index, w)
		r.Answer(u.Index, w)
		return u
	}
	u := answered()
	fmt.Println(r.Acquire(u, 1))
	r.Consume(u)
	u = answered()
	fmt.Println(r.Move(u.Index, r.Word(u.Index)), r.Acquire(u, 1))
	// Output:
	// true
	// true false
}
