package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	tests := []struct {
		name   string
		logs   []string
		want   string
		passed bool
	}{
		{
			"a test with subtests counts by them",
			[]string{`
				{"Action":"pass","Package":"p","Test":"TestA/x"}
				{"Action":"pass","Package":"p","Test":"TestA/y/z"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`},
			"2 passed, 0 failed\n", true,
		},
		{
			"a failed subtest explains its test and package",
			[]string{`
				{"Action":"output","Package":"p","Test":"TestA/x","Output":"got 1\n"}
				{"Action":"fail","Package":"p","Test":"TestA/x"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`},
			"=== fail: p TestA/x\ngot 1\n0 passed, 1 failed\n", false,
		},
		{
			"a test may fail after its subtests passed",
			[]string{`
				{"Action":"pass","Package":"p","Test":"TestA/x"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`},
			"=== fail: p TestA\n1 passed, 1 failed\n", false,
		},
		{
			"a package that does not build",
			[]string{`
				{"ImportPath":"p [p.test]","Action":"build-output","Output":"undefined: x\n"}
				{"ImportPath":"p [p.test]","Action":"build-fail"}
				{"Action":"start","Package":"p"}
				{"Action":"output","Package":"p","Output":"FAIL p [build failed]\n"}
				{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`},
			"=== fail: p\nundefined: x\nFAIL p [build failed]\n0 passed, 1 failed\n", false,
		},
		{
			"a log cut off",
			[]string{`
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"out`},
			"=== never ended: p TestA\n0 passed, 1 failed\n", false,
		},
		{
			"one test in two logs counts once, failed if it failed in any",
			[]string{
				`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" +
					`{"Action":"fail","Package":"p","Test":"TestB"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" +
					`{"Action":"pass","Package":"p","Test":"TestB"}`,
			},
			"=== fail: p TestB\n1 passed, 1 failed\n", false,
		},
		{
			"a test that one log skips and the other passes",
			[]string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
			},
			"1 passed, 0 failed\n", true,
		},
		{
			"skipped tests are named, packages without tests are not",
			[]string{`
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"skip","Package":"p","Test":"TestB"}
				{"Action":"skip","Package":"q"}`},
			"=== skip: p TestB\n1 passed, 0 failed\n", true,
		},
		{
			"nothing ran",
			[]string{"make: *** [Makefile:1: test] Error 1\n"},
			"0 passed, 0 failed\n", false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var paths []string
			for _, log := range tt.logs {
				path := filepath.Join(t.TempDir(), "log.json")
				if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
					t.Fatal(err)
				}
				paths = append(paths, path)
			}
			var out strings.Builder
			err := run(paths, &out)
			if out.String() != tt.want || (err == nil) != tt.passed {
				t.Errorf("run = %q, %v; want %q, passed %t", out.String(), err, tt.want, tt.passed)
			}
		})
	}
}

func TestRunWithoutLog(t *testing.T) {
	if err := run([]string{filepath.Join(t.TempDir(), "none")}, new(strings.Builder)); err == nil {
		t.Error("run of a missing log = nil, want an error")
	}
}
