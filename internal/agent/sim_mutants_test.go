package agent

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// Bugs that the simulation has to find, each planted where the simulation stands
// between the daemon's own functions: in what a core finds, in what one end says to the
// other, and in when it is called.
const (
	mutNoJournal          = "a new core does not know what was sent"
	mutNoRecords          = "a new core does not know what has arrived"
	mutFreeingForgotten   = "a run that was being freed is left to itself"
	mutStartedAgain       = "a new core starts what was started again"
	mutAnswersForgotten   = "a new core forgets answers that may not have arrived"
	mutNotTold            = "workers are not told to look after a replacement"
	mutExecutingNotSeen   = "what is being executed was not seen"
	mutAnsweredNotSeen    = "what is answered was not seen"
	mutNotSeenExecuting   = "what was not seen is being executed"
	mutOwedForgotten      = "answers that are asked for are not sent again"
	mutResendAll          = "all is sent again, whatever the other end has said"
	mutNameKept           = "a mirror that has forgotten everything keeps its name"
	mutOldConnectionOpen  = "the question is answered while the old connection is open"
	mutCompletionIgnored  = "a slot is free again before the completion of its write"
	mutBuriedAlive        = "a process counts as dead when its connection has ended"
	mutOrderPromised      = "a fabric that keeps no order says that it does"
	mutRefusedAfterPicked = "what a process has started goes to another when it detaches"
)

var simMutants = []string{
	mutNoJournal, mutNoRecords, mutFreeingForgotten, mutStartedAgain, mutAnswersForgotten, mutNotTold, mutExecutingNotSeen,
	mutAnsweredNotSeen, mutNotSeenExecuting, mutOwedForgotten, mutResendAll, mutNameKept, mutOldConnectionOpen, mutCompletionIgnored,
	mutBuriedAlive, mutRefusedAfterPicked, mutOrderPromised,
}

// mutantSeeds is within how many seeds each of them is found.
const mutantSeeds = 1600

// TestSimulationFindsMutants shows that the simulation notices when something is wrong.
func TestSimulationFindsMutants(t *testing.T) {
	if raceEnabled {
		t.Skip("the simulations themselves run under the race detector")
	}
	for _, mutant := range simMutants {
		t.Run(mutant, func(t *testing.T) {
			found := ""
			total := sweep(t, mutant, mutantSeeds, func(_ uint64, wrong string) bool {
				found = wrong
				return false
			})
			if found == "" {
				t.Errorf("not found in %d seeds", mutantSeeds)
			}
			t.Logf("after %d seeds: %s", total["seeds"], found[:min(len(found), 300)])
		})
	}
}

// mutateMemory damages what a new core finds, before it looks.
func (n *simNode) mutateMemory() {
	for _, l := range n.lanes {
		for i := range simGeometry.Slots {
			e, r := l.vault.Journal.Load(i), l.vault.Records.Load(i)
			word := l.ring.AnswerWord(i)
			switch {
			case n.w.mutant == mutNoJournal, n.w.mutant == mutFreeingForgotten && e.State == vault.EntryFreeing:
				l.vault.Journal.Strike(i)
			case n.w.mutant == mutNoRecords:
				l.vault.Records.Forget()
				return
			case n.w.mutant == mutStartedAgain && r.State == vault.RecordActive && word.State() == slots.Picked:
				l.ring.Forget(i)
			case n.w.mutant == mutAnswersForgotten && r.State == vault.RecordDone:
				l.vault.Records.Accept(i, &vault.Record{})
			}
		}
	}
}

// mutateVerdicts changes what the answering end says, or does about it.
func (n *simNode) mutateVerdicts(l *simLane, verdicts []byte) []byte {
	v := slices.Clone(verdicts)
	for k := range v {
		switch {
		case n.w.mutant == mutExecutingNotSeen && v[k] == byte(executing),
			n.w.mutant == mutAnsweredNotSeen && v[k] == byte(answered), n.w.mutant == mutResendAll:
			v[k] = byte(notSeen)
		case n.w.mutant == mutNotSeenExecuting && v[k] == byte(notSeen):
			v[k] = byte(executing)
		}
	}
	if n.w.mutant == mutOwedForgotten {
		for i := range l.in.records {
			l.in.records[i].owed = false
		}
	}
	return v
}

// mutateCycle is called before a turn of the agent.
func (n *simNode) mutateCycle() {
	for _, l := range n.lanes {
		if n.w.mutant == mutCompletionIgnored && l.toPeer && l.out.End != nil {
			l.out.End.done = l.out.End.next - 1
		}
	}
}

// mutateDetach is called before a process is detached.
func (n *simNode) mutateDetach(p *simWorker) {
	for _, l := range n.lanes {
		for i := range simGeometry.Slots {
			if word := l.ring.AnswerWord(i); n.w.mutant == mutRefusedAfterPicked && word.State() == slots.Picked && word.Owner() == p.id {
				l.ring.Deliver(i, word.Run(), word.Owner(), word.Ticket())
			}
		}
	}
}
