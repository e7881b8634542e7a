// Package repocheck has no code, only tests: the rules of this repository that
// the compiler does not enforce.
//
//   - Package unsafe is imported by files called *_unsafe.go only, in shm and the
//     two cgo providers, and cgo by the cgo providers only. What protoc-gen-go makes
//     for another module of the repository is exempt. No cgo flag makes warnings
//     errors: a compiler that warns of more must not break users' builds (unsafe_test.go).
//   - Packages import each other in one direction, as the table of
//     imports_test.go allows. A new package must be added there.
//   - No file names a directory of some developer's machine or promises work for
//     later, and no Go file is longer than 600 lines (text_test.go).
//   - Every function and method that programs can call has a runnable example
//     (examples_test.go).
//   - Every direct dependency of every module is argued for in docs/decisions
//     (deps_test.go).
//   - Every test that a document names exists, and every section of docs/semantics.md
//     that says what programs may rely on names the tests that show it
//     (named_test.go).
//   - Every relative link of a document leads to a file, and to a section that it has
//     (links_test.go).
//   - Every chapter is in the table of contents of docs/README.md, and ends with links to
//     its neighbours (book_test.go).
//   - The figures in README.md are those of bench/results (figures_test.go).
//   - The figure of the packages in docs/architecture.md is what the imports are
//     (graph_test.go).
//   - Every comment on an order of memory operations that somebody else relies on has
//     another one of its name where that is (syncpoints_test.go).
//   - Every file here with a rule is in this list (doc_test.go).
//
// Each rule is a function over an fs.FS, so that it is itself tested on small
// made-up trees.
package repocheck
