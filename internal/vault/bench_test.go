package vault_test

import (
	"testing"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// BenchmarkJournal is what the requesting end writes for a request: that it is about to
// be sent, that its slots are about to be freed, and that nothing is left to do.
func BenchmarkJournal(b *testing.B) {
	v := newVault(b, shm.AlignedBytes(vault.Size(ringSlots)))
	e := vault.Entry{Word: slots.MakeWord(slots.Taken, 1, 3, 7), Answer: 64}
	for _, c := range []struct {
		name string
		do   func(i int)
	}{
		{"enter", func(i int) { v.Journal.Enter(i, &e) }},
		{"enter and strike", func(i int) { v.Journal.Enter(i, &e); v.Journal.Strike(i) }},
		{"enter and free", func(i int) { v.Journal.Enter(i, &e); v.Journal.Freeing(i); v.Journal.Strike(i) }},
		{"load", func(i int) { _ = v.Journal.Load(i) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.do(i % ringSlots)
			}
		})
	}
}

// BenchmarkRecords is what the answering end writes for a request: that it has arrived,
// whom it was given to, and that it was answered.
func BenchmarkRecords(b *testing.B) {
	v := newVault(b, shm.AlignedBytes(vault.Size(ringSlots)))
	r := vault.Record{State: vault.RecordActive, Ticket: 7, Run: 1, Method: 3, Answer: 64, From: 9}
	for _, c := range []struct {
		name string
		do   func(i int)
	}{
		{"accept", func(i int) { v.Records.Accept(i, &r) }},
		{"accept assign done", func(i int) { v.Records.Accept(i, &r); v.Records.Assign(i, 5); v.Records.Done(i, 64) }},
		{"load", func(i int) { _ = v.Records.Load(i) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.do(i % ringSlots)
			}
		})
	}
}
