// Package slotmodel has no code, only tests: a model of the slot protocol, small
// enough to look at every state that it can get into.
//
// The model has a ring of three slots, two client processes, the agents of both
// nodes, the connection between them and two service processes. A step is what one
// of them does without anybody being able to come between: a look, a swap, a store,
// a whole cycle's work where only its own agent could interfere. From every state
// the search takes every step that is possible, among them the end of a process at
// any point and the loss of the connection, until there is no new state.
//
//   - state_test.go: what a state is, and how it is packed.
//   - client_test.go, agent_test.go, mirror_test.go, service_test.go, link_test.go: the
//     steps, named after the functions that do the same in client, slots,
//     internal/agent and server.
//   - search_test.go: the search, and the shortest way to a state.
//   - rules_test.go: the rules of the protocol, each of which can be switched off, and
//     what goes wrong then.
//   - model_test.go: no state breaks an invariant, and all can come to rest.
//   - replay_test.go: random ways through the model, with the functions of package slots.
//
// docs/decisions/0012-model.md says what is modelled and what is not. Larger bounds:
//
//	go test ./internal/slotmodel -run TestModel -v -scripts 12/2 -kills 2 -losses 2 -repeats 1
package slotmodel
