// Package fabrictest holds what tests of providers and of their users share: the
// conformance suite that every provider must pass, a provider that works in
// memory, and a wrapper that injects faults from a seed.
package fabrictest
