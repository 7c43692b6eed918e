package run_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/internal/run"
)

type flags struct {
	Addr    string        `help:"Where to listen." default:"127.0.0.1:8080"`
	Port    int           `help:"A port." default:"1"`
	Brokers []string      `help:"Kafka brokers." name:"kafka-brokers"`
	Hold    time.Duration `help:"How long a key is held." default:"120s"`
	Verbose bool          `help:"Say more." negatable:""`
	Format  string        `help:"Log format." enum:"text,json" default:"text"`
	Limit   *int          `help:"A limit, none when not given."`
	Redis   struct {
		Addr string `help:"Redis."`
	} `embed:"" prefix:"redis-"`
}

func defaults(change func(*flags)) flags {
	f := flags{Addr: "127.0.0.1:8080", Port: 1, Hold: 120 * time.Second, Format: "text"}
	change(&f)
	return f
}

func environment(vars ...string) func(string) string {
	return func(name string) string {
		for _, v := range vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestParse(t *testing.T) {
	seven := 7
	tests := []struct {
		name, args, env string
		want            flags
	}{
		{"defaults", "", "", defaults(func(*flags) {})},
		{"flag", "--port=2", "", defaults(func(f *flags) { f.Port = 2 })},
		{"variable", "", "PLAYHEAD_PORT=3", defaults(func(f *flags) { f.Port = 3 })},
		{"flag before variable", "--port=2", "PLAYHEAD_PORT=3", defaults(func(f *flags) { f.Port = 2 })},
		{"flag before wrong variable", "--port=2", "PLAYHEAD_PORT=x", defaults(func(f *flags) { f.Port = 2 })},
		{"empty variable", "", "PLAYHEAD_PORT=", defaults(func(*flags) {})},
		{"list", "", "PLAYHEAD_KAFKA_BROKERS=a,b", defaults(func(f *flags) { f.Brokers = []string{"a", "b"} })},
		{"duration", "", "PLAYHEAD_HOLD=5s", defaults(func(f *flags) { f.Hold = 5 * time.Second })},
		{"switch", "", "PLAYHEAD_VERBOSE=true", defaults(func(f *flags) { f.Verbose = true })},
		{"switch off", "--no-verbose", "PLAYHEAD_VERBOSE=true", defaults(func(*flags) {})},
		{"enum", "", "PLAYHEAD_FORMAT=json", defaults(func(f *flags) { f.Format = "json" })},
		{"pointer", "", "PLAYHEAD_LIMIT=7", defaults(func(f *flags) { f.Limit = &seven })},
		{"prefix", "", "PLAYHEAD_REDIS_ADDR=r:1", defaults(func(f *flags) { f.Redis.Addr = "r:1" })},
		{"help is no variable", "", "PLAYHEAD_HELP=true", defaults(func(*flags) {})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got flags
			if err := run.Parse("bff", &got, strings.Fields(tt.args), environment(tt.env), io.Discard); err != nil {
				t.Fatalf("Parse(%q) with %q: %v", tt.args, tt.env, err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse(%q) with %q: got %+v, want %+v", tt.args, tt.env, got, tt.want)
			}
		})
	}
}

func TestParseErrorsSayWhatToDo(t *testing.T) {
	const hint = " (bff --help lists the flags)"
	tests := []struct{ name, args, env, want string }{
		{"unknown flag", "--prot=2", "", `unknown flag --prot, did you mean "--port"?` + hint},
		{"unknown word", "serve", "", `unexpected argument serve` + hint},
		{"no value", "--port", "", `--port: expected int value but got none` + hint},
		{"wrong value", "--port=x", "", `--port: expected a valid 64 bit int but got "x"` + hint},
		{"wrong variable", "", "PLAYHEAD_PORT=x", `--port: $PLAYHEAD_PORT: expected a valid 64 bit int but got "x"` + hint},
		{"wrong enum", "--format=xml", "", `--format must be one of "text","json" but got "xml"` + hint},
		{"wrong enum variable", "", "PLAYHEAD_FORMAT=xml", `--format: $PLAYHEAD_FORMAT: must be one of text,json but got "xml"` + hint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := run.Parse("bff", new(flags), strings.Fields(tt.args), environment(tt.env), io.Discard)
			if err == nil || err.Error() != tt.want {
				t.Errorf("Parse(%q) with %q:\n got %v\nwant %s", tt.args, tt.env, err, tt.want)
			}
		})
	}
}

func TestParseRequired(t *testing.T) {
	var cli struct {
		Secret string `required:"" help:"Signing secret."`
	}
	if err := run.Parse("bff", &cli, nil, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), "--secret") {
		t.Errorf("got %v, want an error that names --secret", err)
	}
	err := run.Parse("bff", &cli, nil, environment("PLAYHEAD_SECRET=s"), io.Discard)
	if err != nil || cli.Secret != "s" {
		t.Errorf("got %v, secret %q, want nil and s", err, cli.Secret)
	}
}

func TestParseHelp(t *testing.T) {
	var cli struct {
		flags
		Secret string `required:""`
	}
	var out strings.Builder
	if err := run.Parse("bff", &cli, []string{"--help"}, environment("PLAYHEAD_PORT=x"), &out); !errors.Is(err, run.ErrHelp) {
		t.Errorf("got %v, want %v whatever else is wrong", err, run.ErrHelp)
	}
	for _, want := range []string{"Usage: bff", "--kafka-brokers", "$PLAYHEAD_KAFKA_BROKERS", "$PLAYHEAD_REDIS_ADDR"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}

func TestParseTakesNoOtherStruct(t *testing.T) {
	if err := run.Parse("bff", flags{}, nil, environment(), io.Discard); err == nil {
		t.Error("got nil for a struct that cannot be filled")
	}
}
