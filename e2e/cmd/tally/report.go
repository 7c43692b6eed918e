package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is what go doc test2json describes, with the fields of a build.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// node is a test, or a package when test is empty.
type node struct{ pkg, test string }

func (n node) String() string { return strings.TrimSpace(n.pkg + " " + n.test) }

// report holds the last action of every node and what failed ones printed.
type report struct {
	action map[node]string
	output map[node][]string
}

func newReport() report {
	return report{action: map[node]string{}, output: map[node][]string{}}
}

// read makes the report of one log.
func read(in io.Reader) (report, error) {
	r := newReport()
	lines := bufio.NewReader(in) // a Scanner would stop at a long line
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

func (r report) add(e event) {
	n := node{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.output[n] = append(r.output[n], e.Output)
	case "build-output":
		built := node{pkg: e.ImportPath}
		r.output[built] = append(r.output[built], e.Output)
	case "pass", "skip":
		r.action[n] = e.Action
		delete(r.output, n)
	case "fail":
		r.action[n] = e.Action
		if e.FailedBuild != "" {
			r.output[n] = slices.Concat(r.output[node{pkg: e.FailedBuild}], r.output[n])
		}
	case "start", "run":
		r.action[n] = "never ended"
	}
}

// merge adds another log: what failed once stays failed.
func (r report) merge(other report) {
	for n, action := range other.action {
		if failed(r.action[n]) || r.action[n] == "pass" && action == "skip" {
			continue
		}
		r.action[n] = action
		r.output[n] = other.output[n]
	}
}

// failed is false for a node that no log has seen.
func failed(action string) bool {
	return action == "fail" || action == "never ended"
}

func (r report) print(out io.Writer) error {
	parent, excused := r.ancestors()
	var passes, failures int
	for _, n := range slices.SortedFunc(maps.Keys(r.action), func(a, b node) int {
		return strings.Compare(a.String(), b.String())
	}) {
		switch action := r.action[n]; {
		case failed(action) && !excused[n]:
			failures++
			fmt.Fprintf(out, "=== %s: %s\n%s", action, n, strings.Join(r.output[n], ""))
		case action == "skip" && n.test != "":
			fmt.Fprintf(out, "=== skip: %s\n", n)
		case action == "pass" && n.test != "" && !parent[n]:
			passes++
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passes, failures)
	if failures > 0 || passes == 0 {
		return errFailed
	}
	return nil
}

// ancestors finds the tests that count by their subtests, and the tests and
// packages whose failure a failed descendant explains.
func (r report) ancestors() (parent, excused map[node]bool) {
	parent, excused = map[node]bool{}, map[node]bool{}
	for n, action := range r.action {
		for up := n; up.test != ""; {
			up.test = up.test[:max(strings.LastIndexByte(up.test, '/'), 0)]
			parent[up] = true
			if failed(action) {
				excused[up] = true
			}
		}
	}
	return parent, excused
}
