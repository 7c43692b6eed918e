// Mutants breaks the product's rules one at a time and runs the simulator on each. It prints a table. It fails if
// a mutant survives that is not known to be equivalent, or if an edit no longer applies. An overlay holds the
// broken files: the working tree stays unchanged.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	playhead "github.com/playhead/playhead/internal/run"
)

func main() {
	steps := flag.Int("steps", 6_000_000, "steps until a mutant counts as a survivor")
	equivalent := flag.Int("equivalent", 1_000_000, "steps of a mutant that is known to be no different")
	workers := flag.Int("workers", 2, "mutants at once")
	only := flag.String("only", "", "a regular expression for the names of mutants; all without")
	known := flag.String("known", "", "a file of what an earlier run of the same code has printed: those mutants are not run again")
	out := flag.String("out", "", "where the table goes; only printed without")
	version := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *version {
		fmt.Println(playhead.Version("mutants"))
		return
	}
	if err := run(*steps, *equivalent, *workers, *only, *known, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(steps, equivalent, workers int, only, known, out string) error { //nolint:revive // the flags, one by one
	wanted, err := regexp.Compile("^(" + only + ")$")
	if err != nil {
		return err
	}
	if only == "" {
		wanted = regexp.MustCompile("")
	}
	before, err := printed(known)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	results := make([]result, len(mutants))
	var all sync.WaitGroup
	free := make(chan struct{}, workers)
	for i, m := range mutants {
		if !wanted.MatchString(m.name) {
			results[i].skipped = true
			continue
		}
		if r, ok := before[m.name]; ok {
			results[i] = r
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			most := steps
			if m.equivalent != "" {
				most = equivalent
			}
			results[i] = try(filepath.Join(dir, m.name), m, most)
			fmt.Println(results[i].line(m))
			<-free
		})
	}
	all.Wait()
	return report(results, steps, equivalent, out)
}

type result struct {
	seed, steps int // of the run that found it; 0 if none did
	wrong       string
	err         error
	skipped     bool
}

func (r result) found() bool { return r.steps > 0 }

func (r result) line(m mutant) string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("%-18s %v", m.name, r.err)
	case r.found():
		return fmt.Sprintf("%-18s seed %d, %d steps: %s", m.name, r.seed, r.steps, r.wrong)
	}
	return fmt.Sprintf("%-18s survived", m.name)
}

var line = regexp.MustCompile(`(?m)^([a-z-]+) +(?:survived|seed (\d+), (\d+) steps: (.*))$`)

// printed reads the results of an earlier run; none without a file.
func printed(file string) (map[string]result, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the caller's own
	if err != nil {
		return nil, err
	}
	results := make(map[string]result)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		seed, _ := strconv.Atoi(m[2])
		steps, _ := strconv.Atoi(m[3])
		results[m[1]] = result{seed: seed, steps: steps, wrong: m[4]}
	}
	return results, nil
}

func try(dir string, m mutant, steps int) result {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return result{err: err}
	}
	overlay, err := lay(dir, m)
	if err != nil {
		return result{err: err}
	}
	test := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", test, cmp.Or(m.in, "./sim")) //nolint:gosec,noctx // our own
	build.Env = append(os.Environ(), "CGO_ENABLED=0")                                                                   // Go's own linker is faster
	if text, err := build.CombinedOutput(); err != nil {
		return result{err: fmt.Errorf("build: %w\n%s", err, text)}
	}
	defer func() { _ = os.Remove(test) }()
	if m.test != "" {
		return m.runTest(test)
	}
	search := exec.Command(test, "-test.run", "^TestSim$", "-test.timeout", "2h", "-sim.seeds", "1000000", "-sim.steps", "10000", "-sim.total", strconv.Itoa(steps), "-sim.shrink", "0") //nolint:gosec,noctx // our own
	search.Env = append(os.Environ(), "GOMAXPROCS=1")
	text, err := search.CombinedOutput()
	if err == nil {
		return result{}
	}
	return read(string(text))
}

func (m mutant) runTest(binary string) result {
	run := exec.Command(binary, "-test.run", "^"+m.test+"$", "-test.timeout", "10m") //nolint:gosec,noctx // our own
	run.Dir = m.in
	text, err := run.CombinedOutput()
	switch {
	case err == nil:
		return result{}
	case !strings.Contains(string(text), "--- FAIL: "+m.test):
		return result{err: fmt.Errorf("%s: %w\n%s", m.test, err, text)}
	}
	return result{seed: 1, steps: 1, wrong: m.test + " fails"}
}

var found = regexp.MustCompile(`seed (\d+), step \d+ of (\d+): (.*)`)

// read extracts the simulator's finding.
func read(text string) result {
	match := found.FindStringSubmatch(text)
	if match == nil { // A crash counts as found. A timeout may be the machine's fault.
		if !strings.Contains(text, "test timed out") && (strings.Contains(text, "panic") || strings.Contains(text, "deadlock")) {
			return result{seed: 1, steps: 1, wrong: "panics"}
		}
		return result{err: fmt.Errorf("the simulator fails:\n%s", text)}
	}
	seed, _ := strconv.Atoi(match[1])
	steps, _ := strconv.Atoi(match[2])
	return result{seed: seed, steps: steps, wrong: match[3]}
}

// lay writes the broken files and the overlay.
func lay(dir string, m mutant) (string, error) {
	replace, texts := make(map[string]string), make(map[string]string)
	unneeded, err := filepath.Abs("sim/stores_test.go") // it would rebuild every suite
	if err != nil {
		return "", err
	}
	replace[unneeded] = ""
	for _, e := range m.edits {
		text, ok := texts[e.file]
		if !ok {
			raw, err := os.ReadFile(e.file)
			if err != nil {
				return "", err
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%d times in %s: %q", n, e.file, e.old)
		}
		texts[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	for file, text := range texts {
		path, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

func report(results []result, steps, equivalent int, out string) error {
	var b strings.Builder
	var took []int
	var bad, survived []string
	fmt.Fprintf(&b, "# Mutants\n\nEach breaks one rule, and the simulator is to find out within %d steps, from seed 1 on (`make mutants` makes this table).\n"+
		"The rules of the stores are broken in their models: the adapters are held to them by `history/historytest`.\n\n", steps)
	b.WriteString("| mutant | what is broken | found after | by seed | as |\n|---|---|---|---|---|\n")
	for i, m := range mutants {
		r := results[i]
		switch {
		case r.skipped:
		case r.err != nil:
			bad = append(bad, m.name)
		case r.found():
			took = append(took, r.steps)
			fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %s |\n", m.name, m.rule, r.steps, r.seed, short(r.wrong))
		case m.equivalent == "":
			bad = append(bad, m.name)
			survived = append(survived, fmt.Sprintf("- `%s`, %s: %s\n", m.name, m.rule, m.shows))
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		fmt.Fprintf(&b, "\n%d were found, the median within %d steps.\n\nNo different, and not found within %d steps:\n\n", len(took), took[len(took)/2], equivalent)
	}
	for i, m := range mutants {
		if m.equivalent != "" && !results[i].found() && !results[i].skipped {
			fmt.Fprintf(&b, "- `%s`, %s: %s\n", m.name, m.rule, m.equivalent)
		}
	}
	if len(survived) > 0 {
		b.WriteString("\nNot found so far:\n\n" + strings.Join(survived, ""))
	}
	fmt.Println(b.String())
	if out != "" {
		if err := os.WriteFile(out, []byte(b.String()), 0o600); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("survived, or could not be made: %s", strings.Join(bad, ", "))
	}
	return nil
}

// key matches the user and object of a finding.
var key = regexp.MustCompile(`\bu\d+(/[a-z]_\d)?:? ?|\b[a-z]_\d\b ?`)

// short strips what differs between runs from a finding.
func short(wrong string) string {
	wrong = key.ReplaceAllString(wrong, "")
	if i := strings.Index(wrong, ": pro"); i > 0 {
		wrong = wrong[:i]
	}
	return strings.ReplaceAll(wrong, "|", "\\|")
}
