package run

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

const variablePrefix = "PLAYHEAD_"

// allVariables lists the variables of all commands, one a line: the commands of a deployment may share one
// environment and one file. `make reference` writes it.
//
//go:embed variables.txt
var allVariables string

// foreign matches variables that other programs define: tests, clients, and Kubernetes, which adds the address
// of every Service to each pod.
var foreign = regexp.MustCompile(`^PLAYHEAD_((TEST|BENCH)_.*|URL|TOKEN|TOKEN_SECRET|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_\d+_.*)?)$`)

// settings resolves flags from the environment, then from a file.
type settings struct {
	getenv func(string) string
	path   string
	file   map[string]any // by flag
}

func newSettings(args []string, getenv func(string) string) (*settings, error) {
	s := &settings{getenv: getenv, path: early("config", args, getenv)}
	if s.path == "" {
		return s, nil
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if err := yaml.Unmarshal(text, &s.file); err != nil {
		return nil, fmt.Errorf("--config: %s: %w", s.path, err)
	}
	return s, nil
}

// early finds a flag ahead of kong, whose resolvers are fixed before it parses.
func early(flag string, args []string, getenv func(string) string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			return value
		}
		if arg == "--"+flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return getenv(variable(flag))
}

// Validate implements [kong.Resolver].
func (*settings) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver]. It validates a value before kong does, to name its origin in the error.
func (s *settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if common(flag.Name) {
		return nil, nil
	}
	value, origin := s.getenv(variable(flag.Name)), "$"+variable(flag.Name)
	if value == "" {
		line, ok := s.file[flag.Name]
		if !ok || line == nil {
			return nil, nil
		}
		origin = fmt.Sprintf("%s: %s", s.path, flag.Name)
		var err error
		if value, err = scalar(line, flag.Tag.Sep); err != nil {
			return nil, fmt.Errorf("%s: %w", origin, err)
		}
		if value == "" {
			return nil, nil
		}
	}
	if err := try(flag.Value, value); err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	return value, nil
}

// scalar returns a YAML value as the text of a flag. Elements of a list are joined by sep.
func scalar(v any, sep rune) (string, error) {
	switch v := v.(type) {
	case map[string]any:
		return "", errors.New("want a value or a list, got a map")
	case []any:
		texts := make([]string, len(v))
		for i, element := range v {
			var err error
			if texts[i], err = scalar(element, sep); err != nil {
				return "", err
			}
		}
		return strings.Join(texts, string(sep)), nil
	}
	return fmt.Sprint(v), nil
}

// unknown returns an error for a variable or line that no command has.
func (s *settings) unknown(parser *kong.Kong) error {
	known := strings.Fields(allVariables)
	for _, flag := range parser.Model.Flags {
		known = append(known, variable(flag.Name))
	}
	for _, line := range slices.Sorted(maps.Keys(s.file)) {
		if !slices.Contains(known, variable(line)) {
			return fmt.Errorf("%s: %w", s.path, suggest(parser, line))
		}
	}
	for name := range strings.FieldsSeq(s.getenv(Names)) {
		if suffix, ok := strings.CutPrefix(name, variablePrefix); ok && !slices.Contains(known, name) && !foreign.MatchString(name) {
			return fmt.Errorf("$%s: %w", name, suggest(parser, strings.ToLower(strings.ReplaceAll(suffix, "_", "-"))))
		}
	}
	return nil
}

// suggest returns kong's error for an unknown flag, with its "did you mean".
func suggest(parser *kong.Kong, flag string) error {
	if _, err := parser.Parse([]string{"--" + flag}); err != nil {
		return err
	}
	return fmt.Errorf("unknown setting %s", flag)
}

// Names is the key under which the getenv of [Main] lists the names of all variables. No shell can set it.
const Names = "="

func getenv(name string) string {
	if name != Names {
		return os.Getenv(name)
	}
	names := os.Environ()
	for i, v := range names {
		names[i], _, _ = strings.Cut(v, "=")
	}
	return strings.Join(names, "\n")
}

// printConfig writes the settings in the form of --config. Flags named after a secret are left out, unless they name
// a file.
func printConfig(app *kong.Application, out io.Writer) error {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, flag := range app.Flags {
		if common(flag.Name) || secretFlag.MatchString(flag.Name) {
			continue
		}
		var value yaml.Node
		if err := value.Encode(plain(flag.Target)); err != nil {
			return fmt.Errorf("--%s: %w", flag.Name, err)
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: flag.Name, HeadComment: flag.Help}
		node.Content = append(node.Content, key, &value)
	}
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	return ErrHelp
}

var secretFlag = regexp.MustCompile(`(password|secret)$`)

// plain returns a value as YAML has it; kinds of kong's own are texts.
func plain(v reflect.Value) any {
	switch v.Kind() { //nolint:exhaustive // the rest is text
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Bool, reflect.Float64, reflect.String:
		return v.Interface()
	case reflect.Int, reflect.Int32, reflect.Uint32:
		return v.Interface()
	case reflect.Slice:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprint(v.Index(i).Interface())
		}
		return texts
	}
	return fmt.Sprint(v.Interface())
}

// common reports flags of every command, which no file or variable sets.
func common(flag string) bool {
	return slices.Contains([]string{"help", "version", "config", "print-config"}, flag)
}

func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

func withVariable(v *kong.Value) string {
	if v.Flag == nil || common(v.Name) {
		return v.Help
	}
	return fmt.Sprintf("%s ($%s)", v.Help, variable(v.Name))
}

func try(v *kong.Value, value string) error {
	target := reflect.New(v.Target.Type()).Elem()
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
	}
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := v.Mapper.Decode(&kong.DecodeContext{Value: v, Scan: scan}, target); err != nil {
		return err
	}
	if v.Enum != "" && target.Kind() == reflect.String && !v.EnumMap()[value] {
		return fmt.Errorf("must be one of %s but got %q", v.Enum, value)
	}
	return nil
}
