package event

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logged are the directories whose log lines go to the log of the daemon.
var logged = []string{"../../internal", "../../cmd/rdmad"}

// source parses every Go file of the daemon but tests.
func source(t *testing.T, f func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, dir := range logged {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, name, nil, 0)
			if err == nil {
				f(name, fset, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isLogger guesses by its name whether an expression is a logger.
func isLogger(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CallExpr:
		return isLogger(e.Fun)
	}
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "log") || strings.HasSuffix(name, "logger")
}

// uncoded returns the calls in a file that begin a line at the levels warn and above
// other than by a code.
func uncoded(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch sel.Sel.Name {
		case "Warn", "Error", "Fatal", "Panic", "WithLevel", "Err":
			if isLogger(sel.X) {
				found = append(found, call.Pos())
			}
		}
		return true
	})
	return found
}

// Every line of the levels warn and error has a code.
func TestEveryLineHasACode(t *testing.T) {
	source(t, func(name string, fset *token.FileSet, file *ast.File) {
		if filepath.Base(filepath.Dir(name)) == "event" {
			return // where codes make lines
		}
		for _, pos := range uncoded(file) {
			t.Errorf("%s: begin the line with a code of internal/event: event.Some.On(&log)", fset.Position(pos))
		}
	})
}

// The rule finds what it is to find, and errors are no lines.
func TestEveryLineRule(t *testing.T) {
	const text = `package x
func f() {
	c.log.Warn().Msg("a")
	log.Error().Err(err).Msg("b")
	l := workerLog.Warn()
	x.Logger().Error().Msg("c")
	log.WithLevel(y).Msg("d")
	_ = err.Error()
	t.Error("no")
	log.Info().Err(err).Msg("fine")
	event.CoreDied.On(&log).Err(err).Msg("fine")
}`
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(uncoded(file)); n != 5 {
		t.Errorf("%d found, want 5", n)
	}
}

// Every code of the table is used.
func TestEveryCodeIsUsed(t *testing.T) {
	used := map[string]bool{}
	source(t, func(name string, _ *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "event" {
					used[sel.Sel.Name] = true
				}
			}
			return true
		})
	})
	consts := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 4 && f[1] == "Code" && f[2] == "=" {
				consts[strings.Trim(f[3], `"`)] = f[0]
			}
		}
	}
	for _, i := range All() {
		if name := consts[string(i.Code)]; !used[name] {
			t.Errorf("code %s (%s) is used nowhere", i.Code, name)
		}
	}
}
