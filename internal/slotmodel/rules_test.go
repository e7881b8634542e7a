package slotmodel

import "testing"

// rule is a rule of the protocol that the model can do without.
type rule int

const (
	claimBySwap rule = iota + 1
	allBeforePublish
	takeBySwap
	revokeBySwap
	revokeForGood
	deferAnswer
	sweepByJournal
	certainDeath
	idOnceSettled
	nothingAgain
	sentIsMaybe
	closeBeforeOutcomes
	closedBeforeLastLook
	lookAfterPublish
	newTicket
	startedStays
	startedIsMaybe
	pickBySwap
	answerThenDone
	mirrorAtRest
	acquireBySwap
	lastRule
)

// mutants say of each rule where the code has it, in which bounds it shows what the rule
// is for, and what goes wrong without it.
var mutants = []struct {
	rule  rule
	name  string
	where string
	model model
	bad   kind
}{
	// A slot is taken with one compare-and-swap: two who have seen it free do not
	// both get it.
	{claimBySwap, "claim-by-swap", "slots.Ring.claimAt", quietTwo, stolen},
	// A run is written and published when all its slots are claimed.
	{allBeforePublish, "all-before-publish", "slots.Ring.Claim", twoSlots, stolen},
	// The agent takes what it has seen published by a swap: the worker may have
	// revoked it meanwhile, and told its caller so.
	{takeBySwap, "take-by-swap", "slots.Ring.Take", quietTwo, falseNot},
	// The worker revokes by a swap: the agent may have taken it meanwhile.
	{revokeBySwap, "revoke-by-swap", "slots.Ring.Revoke", quietTwo, falseNot},
	// What was revoked is never published again with the same ticket: the agent may
	// have read the header that was there before.
	{revokeForGood, "revoke-for-good", "slots.Ring.Revoke, client lane.revoke", oneByOne, unchecked},
	// An answer that comes before the completion of its request's write waits for it.
	{deferAnswer, "defer-answer", "agent OutLane.answers, OutLane.sent", oneByOne, reused},
	// What the journal has of a dead worker stays until its outcome is known.
	{sweepByJournal, "sweep-by-journal", "slots.Ring.Sweep, agent OutLane.sweep", killOne, stolen},
	// A process that has lost its connection may live, and write.
	{certainDeath, "certain-death", "daemon worker.awaitDeath, conductor.detach", killOne, stolen},
	// The same of a service process.
	{certainDeath, "certain-death-of-services", "daemon worker.awaitDeath, agent Domain.Bury", killOne, trampled},
	// An attach id is given out again when no slot on the wire carries it.
	{idOnceSettled, "id-once-settled", "daemon domain.freeID, agent Domain.UnsettledIDs", killOfTwo, stuck},
	// What was sent is not sent again over a new connection.
	{nothingAgain, "nothing-again", "agent OutLane.Down", lossOne, twice},
	// What was sent on a lane that is lost may have been executed.
	{sentIsMaybe, "sent-is-maybe", "agent OutLane.Down", lossOne, falseNot},
	// The endpoint is closed before outcomes are given, so that nothing late lands.
	{closeBeforeOutcomes, "close-before-outcomes", "agent OutLane.Down, LaneEndpoint.close", lossOne, astray},
	// The lane is marked as closed before the last look at its words...
	{closedBeforeLastLook, "closed-before-last-look", "agent OutLane.Down", lossOne, stuck},
	// ...and a worker looks at the mark after it has published.
	{lookAfterPublish, "look-after-publish", "client lane.publish", lossOne, stuck},
	// The mirror refuses a ticket that is not newer than the last one in its slot.
	{newTicket, "new-ticket", "agent InLane.request", repeatOne, twice},
	// Of a process that leaves, only what it has not started goes to another.
	{startedStays, "started-stays", "agent Domain.Detach, slots.Ring.Withdraw", killOne, twice},
	// What a dead process had started may have been executed.
	{startedIsMaybe, "started-is-maybe", "agent Domain.Bury", killOne, falseNot},
	// A request is picked by a swap: the agent may have withdrawn it meanwhile.
	{pickBySwap, "pick-by-swap", "slots.Ring.Pick", killOne, twice},
	// The answer is written before the slot is marked as done.
	{answerThenDone, "answer-then-done", "slots.Ring.Finish", quietTwo, trampled},
	// A mirror in which handlers run is not used for a new connection.
	{mirrorAtRest, "mirror-at-rest", "daemon domain.resumeMirror", lossOne, trampled},
	// An answer is acquired by a swap: the agent may move it meanwhile, and free its
	// slots.
	{acquireBySwap, "acquire-by-swap", "slots.Ring.Acquire, slots.Ring.Move", spillOne, stolen},
}

// Bounds that are just large enough for a rule to matter.
var (
	quietTwo  = model{slots: 2, scripts: [clients][]int{{1}, {1}}}
	twoSlots  = model{slots: 3, scripts: [clients][]int{{2}, {1}}}
	oneByOne  = model{slots: 1, scripts: [clients][]int{{1, 1}, nil}}
	killOne   = model{slots: 1, scripts: [clients][]int{{1}, {1}}, kills: 1}
	killOfTwo = model{slots: 1, scripts: [clients][]int{{1, 1}, nil}, kills: 1}
	lossOne   = model{slots: 1, scripts: [clients][]int{{1}, {1}}, losses: 1}
	spillOne  = model{slots: 1, scripts: [clients][]int{{1}, {1}}, spills: 1}
	repeatOne = model{slots: 1, scripts: [clients][]int{{1}, nil}, repeats: 1}
)

// Without any one of its rules the protocol breaks, in the way that the rule is there
// to prevent; with it, in the same bounds, it does not.
func TestMutants(t *testing.T) {
	for _, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) {
			m := mu.model
			m.maxStates = 1_000_000
			whole, err := m.search()
			if err != nil || whole.bad != "" {
				t.Fatalf("with the rule: %v, %v", err, &whole)
			}
			m.off, m.want = mu.rule, mu.bad
			got, err := m.search()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: without the rule, after %d states (of %d with it):%v", mu.where, got.states, whole.states, &got)
			if got.bad != mu.bad {
				t.Errorf("got %q, want %q", got.bad, mu.bad)
			}
		})
	}
}

// Every rule that the model can do without has a mutant.
func TestEveryRuleHasAMutant(t *testing.T) {
	seen := map[rule]bool{}
	for _, mu := range mutants {
		seen[mu.rule] = true
	}
	for r := rule(1); r < lastRule; r++ {
		if !seen[r] {
			t.Errorf("rule %d has none", r)
		}
	}
}
