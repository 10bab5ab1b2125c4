// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metric is one that the code makes.
type metric struct {
	name, kind, help string
	labels           []string
}

func repository(elem ...string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(here), "..", ".."}, elem...)...)
}

// metricsOf are all metrics that the code below a directory makes, by name.
func metricsOf(t *testing.T, dir string) []metric {
	t.Helper()
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(repository(dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []metric
	for _, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					if m, ok := made(t, files, call); ok {
						list = append(list, m)
					}
				}
				return true
			})
		}
	}
	slices.SortFunc(list, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return list
}

// made is the metric that a call of one of Prometheus' constructors makes.
func made(t *testing.T, files []*ast.File, call *ast.CallExpr) (metric, bool) {
	t.Helper()
	constructor, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fmt.Sprint(constructor.X) != "prometheus" {
		return metric{}, false
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(constructor.Sel.Name, "New"), "Vec")
	if !slices.Contains([]string{"Gauge", "Counter", "Histogram"}, kind) {
		return metric{}, false
	}
	m := metric{kind: strings.ToLower(kind)}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		t.Fatalf("the options of a metric are no literal: %s", ast.Print(nil, call))
	}
	for _, element := range options.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			switch fmt.Sprint(pair.Key) {
			case "Name":
				m.name = text(t, pair.Value)
			case "Help":
				m.help = text(t, pair.Value)
			}
		}
	}
	if len(call.Args) > 1 {
		m.labels = strs(t, files, call.Args[1])
	}
	return m, true
}

func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	literal, ok := e.(*ast.BasicLit)
	if !ok {
		t.Fatalf("want a literal, got %T", e)
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// strs are the strings of a literal, of a variable of the package that is given one, or of a function's that adds its arguments
// to one.
func strs(t *testing.T, files []*ast.File, e ast.Expr) []string {
	t.Helper()
	var list []string
	switch e := e.(type) {
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			list = append(list, text(t, element))
		}
	case *ast.Ident, *ast.CallExpr:
		list = strs(t, files, definition(t, files, e))
		if call, ok := e.(*ast.CallExpr); ok {
			for _, argument := range call.Args {
				list = append(list, text(t, argument))
			}
		}
	default:
		t.Fatalf("labels are a %T", e)
	}
	return list
}

// definition is the first literal in what a name stands for.
func definition(t *testing.T, files []*ast.File, e ast.Expr) *ast.CompositeLit {
	t.Helper()
	name := fmt.Sprint(e)
	if call, ok := e.(*ast.CallExpr); ok {
		name = fmt.Sprint(call.Fun)
	}
	var found *ast.CompositeLit
	literal := func(node ast.Node) bool {
		if l, ok := node.(*ast.CompositeLit); ok && found == nil {
			found = l
		}
		return found == nil
	}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				if node.Name.Name == name {
					ast.Inspect(node, literal)
				}
			case *ast.AssignStmt:
				if fmt.Sprint(node.Lhs[0]) == name && found == nil {
					ast.Inspect(node.Rhs[0], literal)
				}
			}
			return found == nil
		})
	}
	if found == nil {
		t.Fatalf("%s is not defined by a literal", name)
	}
	return found
}
