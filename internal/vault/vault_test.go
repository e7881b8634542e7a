package vault_test

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	ringSlots = 16
	// firstEntry is the offset of the journal's first word, and slotBytes what a slot has
	// there, or in the records, which follow.
	firstEntry = shm.HeaderSize + 64
	slotBytes  = 32
)

func newVault(t testing.TB, mem []byte) *vault.Vault {
	t.Helper()
	v, err := vault.New(mem, ringSlots)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSize(t *testing.T) {
	mem := shm.AlignedBytes(vault.Size(ringSlots))
	if want := firstEntry + 2*ringSlots*slotBytes; len(mem) != want {
		t.Errorf("%d bytes, want %d", len(mem), want)
	}
	if _, err := vault.New(mem[:len(mem)-8], ringSlots); err == nil {
		t.Error("memory that is too small was taken")
	}
	v := newVault(t, mem)
	for i := range ringSlots {
		if e, r := v.Journal.Load(i), v.Records.Load(i); e.State != vault.EntryNone || r != (vault.Record{}) {
			t.Errorf("slot %d of fresh memory: %+v, %+v", i, e, r)
		}
	}
}

// Everything that is stored comes back, to another view of the memory, and slots are
// independent of each other.
func TestJournal(t *testing.T) {
	mem := shm.AlignedBytes(vault.Size(ringSlots))
	v, other := newVault(t, mem), newVault(t, mem)
	first := vault.Entry{State: vault.EntrySent, Word: slots.MakeWord(slots.Taken, 511, 4095, 1<<40-1), Seq: 1<<32 - 1, Answer: 1<<32 - 2, OneWay: true, Quiet: true}
	last := vault.Entry{State: vault.EntrySent, Word: slots.MakeWord(slots.Taken, 1, 1, 0), Seq: 7, Answer: 0, Quiet: true}
	v.Journal.Enter(0, &first)
	v.Journal.Enter(ringSlots-1, &last)
	want := func(i int, e vault.Entry) {
		t.Helper()
		if got := other.Journal.Load(i); got != e {
			t.Errorf("slot %d: %+v, want %+v", i, got, e)
		}
	}
	want(0, first)
	want(ringSlots-1, last)
	first.State = vault.EntryFreeing
	v.Journal.Freeing(0)
	want(0, first)
	last.State, last.Status = vault.EntryFailing, slots.StatusNotExecuted
	v.Journal.Failing(ringSlots-1, slots.StatusNotExecuted)
	want(ringSlots-1, last)
	v.Journal.Strike(0)
	if got := other.Journal.Load(0).State; got != vault.EntryNone {
		t.Errorf("struck: %v", got)
	}
	want(ringSlots-1, last)
	v.Mirror.Store(99)
	if other.Mirror.Load() != 99 || other.Records.Load(0) != (vault.Record{}) {
		t.Error("mirror or records are not what they were made")
	}
}

func TestRecords(t *testing.T) {
	mem := shm.AlignedBytes(vault.Size(ringSlots))
	v, other := newVault(t, mem), newVault(t, mem)
	r := vault.Record{
		State: vault.RecordActive, Ticket: 1<<40 - 1, Run: 511, To: 4095, From: 4094, Order: 1<<16 - 1, Arrival: 1<<32 - 1,
		Method: 1<<32 - 2, Answer: 1<<32 - 3, OneWay: true, Refs: true,
	}
	v.Records.Accept(3, &r)
	want := func() {
		t.Helper()
		if got := other.Records.Load(3); got != r {
			t.Errorf("%+v, want %+v", got, r)
		}
	}
	want()
	r.Worker = 4095
	v.Records.Assign(3, 4095)
	want()
	r.Worker = 0
	v.Records.Assign(3, 0)
	want()
	r.State, r.Status = vault.RecordFailing, slots.StatusMaybeExecuted
	v.Records.Failing(3, slots.StatusMaybeExecuted)
	want()
	r.State, r.Status, r.Length = vault.RecordDone, 0, 1<<32-1
	v.Records.Done(3, 1<<32-1)
	want()
	r = vault.Record{State: vault.RecordActive, Ticket: 1, Run: 1}
	v.Records.Accept(3, &r)
	want()
	v.Records.Forget()
	if got := other.Records.Load(3).State; got != vault.RecordNone {
		t.Errorf("forgotten: %v", got)
	}
}

// stopped runs f with a page that cannot be written to, and reports whether it has
// stopped f.
func stopped(t *testing.T, page []byte, f func()) (stopped bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	protect := func(prot int) {
		if err := unix.Mprotect(page, prot); err != nil {
			t.Fatal(err)
		}
	}
	protect(unix.PROT_READ)
	defer protect(unix.PROT_READ | unix.PROT_WRITE)
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			stopped = true
		}
	}()
	f()
	return false
}

// A process that dies between any two stores of a change leaves what was there before
// it, or what is there after it; a new request may also be no request yet. To stop a
// change there, the vault is put into memory so that a page ends between two words of the
// slot, and one of the two pages cannot be written to.
func TestDeathBetweenStores(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own accesses do not survive a fault")
	}
	entry := vault.Entry{State: vault.EntrySent, Word: slots.MakeWord(slots.Taken, 3, 5, 8), Seq: 1, Answer: 2, OneWay: true}
	next := vault.Entry{State: vault.EntrySent, Word: slots.MakeWord(slots.Taken, 2, 6, 9), Seq: 11, Answer: 12, Quiet: true}
	record := vault.Record{State: vault.RecordActive, Ticket: 8, Run: 3, From: 4, Order: 1, Arrival: 2, Method: 3, Answer: 4, OneWay: true}
	after := vault.Record{State: vault.RecordActive, Ticket: 9, Run: 2, From: 5, Order: 2, Arrival: 3, Method: 4, Answer: 5}
	journal := func(v *vault.Vault) { v.Journal.Enter(2, &entry) }
	records := func(v *vault.Vault) { v.Records.Accept(2, &record) }
	for name, c := range map[string]struct {
		before, change func(v *vault.Vault)
		// fresh: the change is about another request than what is there.
		fresh   bool
		records bool
	}{
		"enter":          {func(*vault.Vault) {}, journal, true, false},
		"freeing":        {journal, func(v *vault.Vault) { v.Journal.Freeing(2) }, false, false},
		"failing":        {journal, func(v *vault.Vault) { v.Journal.Failing(2, slots.StatusDeadline) }, false, false},
		"strike":         {journal, func(v *vault.Vault) { v.Journal.Strike(2) }, false, false},
		"enter again":    {func(v *vault.Vault) { journal(v); v.Journal.Failing(2, 4); v.Journal.Strike(2) }, func(v *vault.Vault) { v.Journal.Enter(2, &next) }, true, false},
		"accept":         {func(*vault.Vault) {}, records, true, true},
		"assign":         {records, func(v *vault.Vault) { v.Records.Assign(2, 9) }, false, true},
		"done":           {records, func(v *vault.Vault) { v.Records.Done(2, 55) }, false, true},
		"record failing": {records, func(v *vault.Vault) { v.Records.Failing(2, slots.StatusNoService) }, false, true},
		"failed":         {func(v *vault.Vault) { records(v); v.Records.Failing(2, 4) }, func(v *vault.Vault) { v.Records.Done(2, 55) }, false, true},
		"accept again":   {func(v *vault.Vault) { records(v); v.Records.Done(2, 55) }, func(v *vault.Vault) { v.Records.Accept(2, &after) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			at := firstEntry + 2*slotBytes
			if c.records {
				at += ringSlots * slotBytes
			}
			pages := (at+slotBytes)/4096 + 2
			stops := 0
			for word := 1; word < slotBytes/8; word++ {
				for side := range 2 {
					mem, err := unix.Mmap(-1, 0, (pages+1)*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
					if err != nil {
						t.Fatal(err)
					}
					// The given word of the slot is the first one of a page.
					edge := pages - 1
					skip := edge*4096 - (at + word*8)
					v := newVault(t, mem[skip:])
					c.before(v)
					was := state(v)
					page := mem[(edge-1+side)*4096:][:4096]
					dead := stopped(t, page, func() { c.change(v) })
					is := state(v)
					c.change(v)
					will := state(v)
					none := is.entry.State == vault.EntryNone && is.record.State == vault.RecordNone
					if !same(is, was) && !same(is, will) && !(c.fresh && none) {
						t.Errorf("stopped before word %d, side %d: %+v, which is neither %+v nor %+v", word, side, is, was, will)
					}
					if dead {
						stops++
					}
					if err := unix.Munmap(mem); err != nil {
						t.Error(err)
					}
				}
			}
			if stops == 0 {
				t.Error("it was never stopped")
			}
		})
	}
}

// kept is what a vault has for the slot.
type kept struct {
	entry  vault.Entry
	record vault.Record
}

func state(v *vault.Vault) kept { return kept{v.Journal.Load(2), v.Records.Load(2)} }

// same reports whether two states mean the same: what only some states have counts for
// nothing in others.
func same(a, b kept) bool { return a.meaning() == b.meaning() }

func (k kept) meaning() kept {
	switch k.entry.State {
	case vault.EntryNone:
		k.entry = vault.Entry{}
	case vault.EntryFailing:
	default:
		k.entry.Status = 0
	}
	switch k.record.State {
	case vault.RecordNone:
		k.record = vault.Record{}
	case vault.RecordDone:
	default:
		k.record.Length = 0
	}
	return k
}
