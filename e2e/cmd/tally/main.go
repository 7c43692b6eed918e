// Command tally reads logs of go test -json, prints what failed and was
// skipped, and closes with one line:
//
//	tally test.json e2e.json
//	412 passed, 0 failed
//
// A test in several logs counts once, as failed if it failed in any. A test
// with subtests counts by them. A test or package that never ended has failed,
// and a package that failed without a failing test (it did not build, it
// panicked) counts as one. Lines that are no events are left out.
// The exit code is 1 when anything failed or nothing passed.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

var errFailed = errors.New("something failed, or nothing passed")

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) { // the closing line says it
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	os.Exit(1)
}

// run is the command as a function; paths are the logs.
func run(paths []string, out io.Writer) error {
	all := newReport()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		one, err := read(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read log %s: %w", path, err)
		}
		all.merge(one)
	}
	return all.print(out)
}
