//go:build generators

package generators_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/e2e/engine"
)

const root = "../.."

// TestGeneratedClients generates clients in five languages. Those with a toolchain make the round of testdata
// against a server: report, resume point, list, delete.
func TestGeneratedClients(t *testing.T) {
	w := &world{folder: t.TempDir(), jars: jars(t)}
	w.generate(t)
	p := allinonetest.Start(t, allinone.Config{})
	for language, round := range map[string]func(*world, *testing.T) []string{
		"typescript": (*world).typescript, "python": (*world).python, "java": (*world).java, "kotlin": (*world).kotlin,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			argv := round(w, t)
			token, err := p.Token(language, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			out := command(t, append([]string{"env", "PLAYHEAD_URL=http://" + p.HTTP(), "PLAYHEAD_TOKEN=" + token}, argv...)...)
			if want := "resume at 90000 ms, 1 listed, 0 after the delete\n"; out != want {
				t.Errorf("got %q, want %q", out, want)
			}
		})
	}
	t.Run("kotlin and swift optionals", w.optionals)
}

type world struct{ folder, jars string }

// generators are by folder. Nothing is nullable, so Java needs no wrapper for that.
var generators = map[string]string{
	"typescript": "generatorName: typescript-fetch\nadditionalProperties: {importFileExtension: .js}",
	"python":     "generatorName: python\nadditionalProperties: {packageName: playhead_api}",
	"java":       "generatorName: java\nlibrary: native\nadditionalProperties: {openApiNullable: false}",
	"kotlin":     "generatorName: kotlin",
	"swift":      "generatorName: swift6",
}

func jars(t *testing.T) string {
	t.Helper()
	lib, err := engine.InstallJars(t.Context(), engine.Config{Dir: cmp.Or(os.Getenv("ENGINES_DIR"), filepath.Join(root, ".engines"))}, "generators")
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func (w *world) generate(t *testing.T) {
	t.Helper()
	argv := w.java17(w.path(t, "openapi-generator-cli-*.jar"), "org.openapitools.codegen.OpenAPIGenerator", "batch", "--threads", "2")
	spec, err := filepath.Abs(filepath.Join(root, "docs/api/openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	for folder, settings := range generators {
		w.put(t, folder+".yaml", fmt.Appendf(nil, "inputSpec: %s\noutputDir: %s\n%s\n", spec, filepath.Join(w.folder, folder), settings))
		argv = append(argv, filepath.Join(w.folder, folder+".yaml"))
	}
	if out := command(t, argv...); strings.Contains(out, "failed") {
		t.Fatal(out)
	}
}

func (w *world) typescript(t *testing.T) []string {
	folder := filepath.Join(w.folder, "typescript")
	w.put(t, "typescript/round.ts", read(t, "testdata/round.ts"))
	w.put(t, "typescript/package.json", []byte(`{"type":"module"}`))
	command(t, filepath.Join(root, ".tools/npm/node_modules/.bin/tsc"), "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", "nodenext",
		"--outDir", filepath.Join(folder, "out"), filepath.Join(folder, "round.ts"))
	return []string{"node", filepath.Join(folder, "out/round.js")}
}

// python keeps its environment in .tools.
func (w *world) python(t *testing.T) []string {
	w.put(t, "python/round.py", read(t, "testdata/round.py"))
	env := filepath.Join(root, ".tools/generators")
	command(t, "python3", "-m", "venv", env)
	command(t, filepath.Join(env, "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(w.folder, "python/requirements.txt"))
	return []string{filepath.Join(env, "bin/python"), filepath.Join(w.folder, "python/round.py")}
}

func (w *world) java(t *testing.T) []string {
	folder := filepath.Join(w.folder, "java")
	path := w.path(t, "jackson-*.jar", "jsr305-*.jar", "jakarta*.jar")
	out := filepath.Join(folder, "out")
	command(t, append([]string{"javac", "-nowarn", "-proc:none", "-cp", path, "-d", out, "testdata/Round.java"}, sources(t, filepath.Join(folder, "src/main"), ".java")...)...)
	return []string{"java", "-cp", out + ":" + path, "Round"}
}

// kotlin compiles the outbox of client/kotlin too, and runs it through its cases.
func (w *world) kotlin(t *testing.T) []string {
	folder := filepath.Join(w.folder, "kotlin")
	path := w.path(t, "kotlin-stdlib-2*.jar", "kotlin-reflect-*.jar", "moshi-*.jar", "okhttp-*.jar", "okio-*.jar")
	out := filepath.Join(folder, "out")
	argv := w.java17(w.path(t, "kotlin*.jar", "annotations-*.jar"), "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-nowarn", "-cp", path, "-d", out)
	command(t, append(argv, filepath.Join(folder, "src/main/kotlin"), filepath.Join(root, "client/kotlin"), "testdata/Cases.kt", "testdata/Round.kt")...)
	cases := command(t, "java", "-cp", out+":"+path, "CasesKt", filepath.Join(root, "client/testdata/outbox.json"))
	if !regexp.MustCompile(`^\d\d+ cases\n$`).MatchString(cases) {
		t.Errorf("outbox: %s", cases)
	}
	return []string{"java", "-cp", out + ":" + path, "RoundKt"}
}

// optionals checks that Kotlin and Swift have an optional type for exactly the fields that may be missing.
func (w *world) optionals(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Required   []string
			}
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(root, "docs/api/openapi.json")), &document); err != nil || len(document.Components.Schemas) == 0 {
		t.Fatalf("%d schemas: %v", len(document.Components.Schemas), err)
	}
	for name, schema := range document.Components.Schemas {
		want := len(schema.Properties) - len(schema.Required)
		for language, field := range map[string]string{"kotlin": `(?m)^    val .*\? = null,?$`, "swift": `(?m)^    public var .*\?$`} {
			files := sources(t, filepath.Join(w.folder, language), "/"+name+map[string]string{"kotlin": ".kt", "swift": ".swift"}[language])
			if len(files) != 1 {
				t.Fatalf("%s: %d files of %s", language, len(files), name)
			}
			if got := len(regexp.MustCompile(field).FindAll(read(t, files[0]), -1)); got != want {
				t.Errorf("%s: %s has %d optional fields, want %d", language, name, got, want)
			}
		}
	}
}

func (w *world) put(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// java17 is a command for a short run: without the optimizing compiler it takes half the time.
func (w *world) java17(path string, args ...string) []string {
	return append([]string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1500m", "-cp", path}, args...)
}

func (w *world) path(t *testing.T, patterns ...string) string {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(w.jars, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s in %s: %v", pattern, w.jars, err)
		}
		all = append(all, found...)
	}
	return strings.Join(all, ":")
}

func sources(t *testing.T, folder, end string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, end) && !slices.Contains([]string{"docs", "test"}, filepath.Base(filepath.Dir(path))) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// command returns the standard output.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var errors strings.Builder
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(argv[0]), err, out, errors.String())
	}
	return string(out)
}
