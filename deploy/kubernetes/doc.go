// Package kubernetes has no code, only tests: of the manifests beside it. It is a module
// of its own because of what they are checked against: Kubernetes' own types and
// kustomize, as kubectl has it. See docs/decisions/0028-packages.md.
package kubernetes
