package run

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// ErrHelp reports printed help, a success for [Main].
var ErrHelp = errors.New("help printed")

// Parse fills cli, a pointer to a kong struct, from args, without the program's name. A missing flag takes its
// environment variable, such as PLAYHEAD_DRAIN for --drain, then its line in the file of --config, then its
// default. An empty variable counts as unset. Fields take no env tag: kong would read the process's
// environment, bypassing getenv. A variable PLAYHEAD_... that no command has is an error.
//
// --help, --version and --print-config print to out and return [ErrHelp]. --help includes the text of cli's
// method Help, if any. Other errors are one line that names the flag, variable or line. Parse never exits.
func Parse(name string, cli any, args []string, getenv func(string) string, out io.Writer) error { //nolint:revive // what main has, and a name
	helped := false
	common := &commonFlags{}
	settings, err := newSettings(args, getenv)
	if err != nil {
		return err
	}
	parser, err := kong.New(cli,
		kong.Name(name),
		kong.Writers(out, out),
		kong.Exit(func(int) { helped = true }), // kong parses on; the result is ignored
		kong.Resolvers(settings),
		kong.ValueFormatter(withVariable),
		kong.Embed(common),
	)
	if err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	_, err = parser.Parse(args)
	if helped {
		return ErrHelp
	}
	if err == nil {
		err = outside(parser.Model.Node)
	}
	if err == nil {
		err = settings.unknown(parser)
	}
	if err != nil {
		message := strings.Replace(err.Error(), `got "EOL" (<EOL>)`, "got none", 1) // kong's text for a missing value
		return fmt.Errorf("%s (%s --help lists the flags)", message, name)
	}
	if common.PrintConfig {
		return printConfig(parser.Model, out)
	}
	return nil
}

type commonFlags struct {
	Version     version `help:"Print the version and end."`
	Config      string  `help:"YAML file with a line \"flag: value\" for each setting. A flag or its variable goes before it." placeholder:"FILE"`
	PrintConfig bool    `help:"Print all settings as such a file, without secrets, and end."`
}

// outside rejects negative numbers and durations, zero for flags with the tag positive, and durations above the
// tag most.
func outside(node *kong.Node) error {
	for _, flag := range node.Flags {
		v := flag.Target
		if v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0 {
			return fmt.Errorf("--%s: want 0 or more, got %v", flag.Name, v)
		}
		if flag.Tag.Has("positive") && v.IsZero() {
			return fmt.Errorf("--%s: want more than 0", flag.Name)
		}
		if most, err := time.ParseDuration(flag.Tag.Get("most")); err == nil && v.Int() > int64(most) {
			return fmt.Errorf("--%s: want %s at most, got %v", flag.Name, flag.Tag.Get("most"), v)
		}
	}
	return nil
}

type version bool

// BeforeReset prints the version and exits. kong calls it even if other arguments are invalid.
func (version) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, Version(app.Model.Name))
	app.Exit(0)
	return nil
}

// Version is the output of --version: the command, its version, the commit and its time if known, and Go's version.
func Version(name string) string { return name + " " + built() }

func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	parts := []string{info.Main.Version}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			parts = append(parts, "commit "+s.Value[:min(len(s.Value), 12)])
		case s.Key == "vcs.time":
			parts = append(parts, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			parts = append(parts, "with changes")
		}
	}
	return strings.Join(append(parts, info.GoVersion), ", ")
}
