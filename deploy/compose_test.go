// Package deploy_test checks the files for Docker Compose against the commands: CI has no Docker.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

type composeFile struct {
	Services map[string]struct {
		Image string
		Build struct {
			Context, Dockerfile string
			Args                map[string]string
		}
		Command, Ports, Volumes, Secrets []string
	}
	Secrets, Volumes map[string]any
}

var (
	pinned  = regexp.MustCompile(`^[a-z/-]+:v?\d[\w.-]*$`)
	address = regexp.MustCompile(`[=/]([a-z-]+):\d+$`)
)

func TestComposeFiles(t *testing.T) {
	for _, name := range []string{"compose.yaml", "services.yaml", "../examples/compose/compose.yaml"} {
		var file composeFile
		if err := yaml.Unmarshal(read(t, name), &file); err != nil || len(file.Services) == 0 {
			t.Fatalf("%s: %d services, %v", name, len(file.Services), err)
		}
		for service, s := range file.Services {
			where := name + ": " + service
			if s.Build.Context == "" {
				if !pinned.MatchString(s.Image) {
					t.Errorf("%s: image %q has no version", where, s.Image)
				}
				continue
			}
			context := filepath.Join(filepath.Dir(name), s.Build.Context)
			if built := string(read(t, filepath.Join(context, s.Build.Dockerfile))); !strings.Contains(built, s.Build.Args["COMMAND"]+")") && !strings.Contains(built, s.Build.Args["COMMAND"]+"|") {
				t.Errorf("%s: the Dockerfile does not build %q", where, s.Build.Args["COMMAND"])
			}
			known := flagsOf(t, s.Build.Args["COMMAND"])
			for _, argument := range s.Command {
				if flag, _, _ := strings.Cut(argument, "="); strings.HasPrefix(flag, "--") && !slices.Contains(known, flag) {
					t.Errorf("%s: %s has no flag %s", where, s.Build.Args["COMMAND"], flag)
				}
				if host := address.FindStringSubmatch(argument); host != nil && file.Services[host[1]].Image == "" && file.Services[host[1]].Build.Context == "" {
					t.Errorf("%s: %s is of no service here", where, argument)
				}
			}
			for _, port := range s.Ports {
				inside := port[strings.LastIndex(port, ":"):]
				if !strings.HasPrefix(port, "127.0.0.1:") || !slices.ContainsFunc(s.Command, func(a string) bool { return strings.HasSuffix(a, "0.0.0.0"+inside) }) {
					t.Errorf("%s: port %s is not on loopback, or nothing listens there", where, port)
				}
			}
			for _, secret := range s.Secrets {
				if file.Secrets[secret] == nil || !strings.Contains(strings.Join(s.Command, " "), "/run/secrets/"+secret) {
					t.Errorf("%s: secret %s is not declared, or not used", where, secret)
				}
			}
			for _, volume := range s.Volumes {
				source, _, _ := strings.Cut(volume, ":")
				if _, ok := file.Volumes[source]; !ok {
					t.Errorf("%s: volume %s is not declared", where, volume)
				}
			}
		}
	}
}

// flagsOf returns the flags of a command by docs/configuration.md, which CI compares with --help. It leaves out secrets.
func flagsOf(t *testing.T, command string) []string {
	t.Helper()
	if command == "playhead" {
		command = "playhead serve"
	}
	_, section, found := strings.Cut(string(read(t, "../docs/configuration.md")), "\n## "+command+"\n")
	if !found {
		t.Fatalf("docs/configuration.md has no section %s", command)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	flags := []string{"--token-secret-file"}
	for _, name := range regexp.MustCompile(`(?m)^#? ?([a-z-]+):`).FindAllStringSubmatch(section, -1) {
		flags = append(flags, "--"+name[1])
	}
	return flags
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
