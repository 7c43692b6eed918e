package run_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/internal/run"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "playhead.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseConfigFile(t *testing.T) {
	file := configFile(t, "port: 4\nhold: 5s\nkafka-brokers: [a, b]\nverbose: true\nredis-addr: r:1\n")
	want := defaults(func(f *flags) {
		f.Port, f.Hold, f.Brokers, f.Verbose, f.Redis.Addr = 4, 5*time.Second, []string{"a", "b"}, true, "r:1"
	})
	for _, args := range [][]string{{"--config", file}, {"--config=" + file}} {
		var got flags
		if err := run.Parse("bff", &got, args, environment(), io.Discard); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v and %v, want %+v", args, got, err, want)
		}
	}
	var got flags
	err := run.Parse("bff", &got, []string{"--hold=7s"}, environment("PLAYHEAD_CONFIG="+file, "PLAYHEAD_PORT=6"), io.Discard)
	want.Port, want.Hold = 6, 7*time.Second
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a variable and a flag before the file: got %+v and %v, want %+v", got, err, want)
	}
}

func TestParseConfigFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"prot: 4":        `unknown flag --prot, did you mean "--port"?`,
		"port: x":        `playhead.yaml: port: expected a valid 64 bit int but got "x"`,
		"rediz: {a: 1}":  "unknown flag --rediz",
		"port: {a: 1}":   "playhead.yaml: port: want a value or a list, got a map",
		"port: [1":       "playhead.yaml: yaml: line 1",
		"port: 1\nport:": "already defined",
	} {
		err := run.Parse("bff", new(flags), []string{"--config", configFile(t, text)}, environment(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if err := run.Parse("bff", new(flags), []string{"--config=none.yaml"}, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), "--config: open none.yaml") {
		t.Errorf("a missing file: got %v", err)
	}
}

func TestParseUnknownVariable(t *testing.T) {
	for name, want := range map[string]string{
		"PLAYHEAD_HODL":                 `$PLAYHEAD_HODL: unknown flag --hodl, did you mean "--hold"?`,
		"PLAYHEAD_REDIS_ADR":            `did you mean "--redis-addr"?`,
		"PLAYHEAD_ZZZZZZ":               "$PLAYHEAD_ZZZZZZ: unknown flag --zzzzzz",
		"PLAYHEAD_TOKEN_SECRET":         "",
		"PLAYHEAD_SERVICE_HOST":         "", // Kubernetes sets these for a Service named playhead
		"PLAYHEAD_PORT_8080_TCP_ADDR":   "",
		"PLAYHEAD_BFF_SERVICE_PORT_RPC": "",
		"PLAYHEAD_HOLD":                 "",
		"OTHER_HODL":                    "",
	} {
		err := run.Parse("bff", new(flags), nil, environment(run.Names+"=HOME\n"+name), io.Discard)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func TestPrintConfig(t *testing.T) {
	type secrets struct {
		flags
		RedisPassword string
		PasswordFile  string
	}
	var out strings.Builder
	args := []string{"--print-config", "--port=9", "--kafka-brokers=a,b", "--redis-password=topsecret", "--password-file=p"}
	if err := run.Parse("bff", new(secrets), args, environment("PLAYHEAD_HOLD=7s"), &out); !errors.Is(err, run.ErrHelp) {
		t.Fatalf("got %v, want %v", err, run.ErrHelp)
	}
	if strings.Contains(out.String(), "topsecret") {
		t.Errorf("it prints a secret:\n%s", out.String())
	}
	var got secrets
	if err := run.Parse("bff", &got, []string{"--config", configFile(t, out.String())}, environment(), io.Discard); err != nil {
		t.Fatalf("%v, of:\n%s", err, out.String())
	}
	want := secrets{PasswordFile: "p", flags: defaults(func(f *flags) { f.Port, f.Hold, f.Brokers = 9, 7*time.Second, []string{"a", "b"} })}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back: got %+v, want %+v, of:\n%s", got, want, out.String())
	}
}
