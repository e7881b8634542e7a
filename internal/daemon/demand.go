package daemon

import "github.com/rdmad/rdmad/slots"

// demand is what the workers of a ring have wanted of it lately. Hundreds of processes that do not
// run all at the same time hold next to nothing now and then, and what would be shared among the few
// that do just then fills the ring when all of them run.
type demand struct {
	// wants and wanted are the most slots that each owner has wanted in this period and in the
	// one before it, of which this one began at turned and has had turns looks.
	wants, wanted [slots.MaxOwner + 1]uint32
	turned        int64
	turns         int
	// runs and ran are the longest runs of each owner that were journalled in these periods.
	runs, ran [slots.MaxOwner + 1]uint16
	// lasts is how much each owner held at the last look at what lasts that it had held for an
	// epoch and more.
	lasts [slots.MaxOwner + 1]uint32
}

// restart forgets what was wanted while nothing was shared.
func (d *demand) restart(now int64) {
	clear(d.wants[:])
	clear(d.wanted[:])
	d.turned, d.turns = now, 0
}

// wanting makes of what each owner holds what it has wanted lately. Who holds as much as it may, which
// is limit, or has no room for another run such as its last ones, wants more: all that there is. What
// lasts is no part of the shares, up to lasting slots of each owner. resting says that looks are rare.
func (d *demand) wanting(now int64, held *[slots.MaxOwner + 1]uint32, limit, lasting, all uint32, resting bool) {
	if d.turns++; now-d.turned >= int64(epoch) && (resting || d.turns >= calmLooks) {
		d.wanted, d.ran, d.turned, d.turns = d.wants, d.runs, now, 0
		clear(d.wants[:])
		clear(d.runs[:])
	}
	for o, h := range held {
		h -= min(h, d.lasts[o], lasting)
		if limit > 0 && h > 0 && (8*h >= 7*limit || h+uint32(max(d.runs[o], d.ran[o])) > limit) {
			h = all
		}
		d.wants[o] = max(d.wants[o], h)
		held[o] = max(d.wants[o], d.wanted[o])
	}
}

// look notes how much of what is held each owner has held since the words in since were the ring's.
func (d *demand) look(r *slots.Ring, since []slots.Word) {
	clear(d.lasts[:])
	for i, old := range since {
		if w := r.Word(i); w.State() != slots.Free && w.Ticket() == old.Ticket() {
			d.lasts[w.Owner()]++
		}
	}
}
