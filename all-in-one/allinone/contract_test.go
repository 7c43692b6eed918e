package allinone_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// TestClientContract makes the same calls by the three clients, each as a user of its own. They have the same
// results.
func TestClientContract(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	secret, err := os.ReadFile(filepath.Join(dir, "token-secret"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../client/testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	folder := javaScript(t)
	for user, call := range map[string]func(context.Context, string) (string, error){
		"go": func(ctx context.Context, token string) (string, error) { return callGo(ctx, p.http, token) },
		"javascript": func(ctx context.Context, token string) (string, error) {
			return script(ctx, p.http, token, "node", "--experimental-websocket", "--no-warnings", filepath.Join(folder, "contract.mjs"))
		},
		"python": func(ctx context.Context, token string) (string, error) {
			return script(ctx, p.http, token, "python3", "-B", "../../client/python/contract.py")
		},
	} {
		t.Run(user, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			claims := jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()}
			token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(bytes.TrimSpace(secret))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := call(ctx, token); err != nil || got != string(text) {
				t.Errorf("got %v\n%s\nwant\n%s", err, got, text)
			}
		})
	}
}

// javaScript assembles the package with its contract, and returns its folder.
func javaScript(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "package")
	if out, err := exec.CommandContext(t.Context(), "node", "../../client/javascript/assemble.mjs", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile("../../client/javascript/test/contract.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "contract.mjs"), text, 0o600); err != nil { // the folder is the package "playhead"
		t.Fatal(err)
	}
	return folder
}

func script(ctx context.Context, url, token string, command ...string) (string, error) {
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	run.Env = append(os.Environ(), "PLAYHEAD_URL="+url, "PLAYHEAD_TOKEN="+token)
	out, err := run.CombinedOutput()
	return string(out), err
}

// caller makes the calls in Go. It panics on an error.
type caller struct {
	*client.Client
	said strings.Builder
}

func (c *caller) say(words ...any) { fmt.Fprintln(&c.said, words...) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func film(id string) *messagev1.Object { return &messagev1.Object{Id: id, Type: 1} }

func callGo(ctx context.Context, url, token string) (said string, err error) {
	statuses := make(chan string, 2)
	cfg := client.Config{URL: url, Token: client.StaticToken(token), Answered: func(a client.Answer) { statuses <- name(a.Status) }}
	c := &caller{Client: must(client.New(cfg))}
	defer func() {
		if wrong := recover(); wrong != nil {
			said, err = c.said.String(), fmt.Errorf("%v", wrong)
		}
	}()
	go func() { _ = c.Run(ctx) }() // ends with ctx
	c.report("1", messagev1.Kind_KIND_STOP, 600_000)
	first := <-statuses
	c.report("2", messagev1.Kind_KIND_FINISH, 5_400_000)
	c.say("report", first, <-statuses)
	c.reads(ctx)
	c.decisions(ctx)
	c.backup(ctx)
	cfg.Token = client.StaticToken("none")
	_, err = must(client.New(cfg)).Recording(ctx)
	c.failed(err)
	_, err = c.Changes(ctx, "nonsense")
	c.failed(err)
	c.follow(ctx)
	return c.said.String(), nil
}

func (c *caller) report(id string, kind messagev1.Kind, position int64) {
	if err := c.Report(&messagev1.Heartbeat{
		ObjectId: id, ObjectType: 1, Kind: kind, PositionMs: position, DurationMs: 5_400_000, Session: "s",
		EventTimeMs: time.Now().UnixMilli(), Meta: map[string]string{"title": map[string]string{"1": "Low Tide"}[id]},
	}); err != nil {
		panic(err)
	}
}

func (c *caller) reads(ctx context.Context) {
	c.say("point", resume(must(c.Point(ctx, film("1")))), resume(must(c.Point(ctx, film("none")))))
	found := must(c.Lookup(ctx, film("1"), film("none")))
	c.say("lookup", resume(found[0]), resume(found[1]))
	c.ids("list", c.List(ctx, client.Filter{Type: 1}))
	c.continues(ctx)
	c.ids("search", c.Search(ctx, "tide", 0))
	sessions := must(c.Viewings(ctx, film("1")))
	c.say("viewings", len(sessions), sessions[0].GetToMs())
	stats := must(c.Stats(ctx, client.StatsQuery{By: "object", Zone: "Europe/Berlin"}))
	words := []any{"stats", stats.Total.Plays, stats.Total.Viewings}
	for _, b := range stats.Buckets {
		words = append(words, b.Object.GetId())
	}
	c.say(words...)
}

func (c *caller) decisions(ctx context.Context) {
	marking := client.Marking{Objects: []*messagev1.MarkedObject{{Object: film("3")}}, Mark: messagev1.Mark_MARK_WATCHED}
	c.say("mark", name(must(c.Mark(ctx, marking)).GetStatuses()[0]))
	for _, dismissed := range []bool{true, false} {
		c.say("dismiss", must(c.Dismiss(ctx, dismissed, film("1"), film("none"))))
		c.continues(ctx)
	}
	c.say("recording", must(c.Recording(ctx)), must(c.SetRecording(ctx, false)), must(c.SetRecording(ctx, true)))
	first := must(c.Changes(ctx, ""))
	c.say("changes", map[bool]string{true: "resync"}[first.GetResync()])
	c.say("delete", must(c.Delete(ctx, film("2"), film("none"))))
	words := []any{"changes", "removed"}
	for _, o := range must(c.Changes(ctx, first.GetToken())).GetRemoved() {
		words = append(words, o.GetId())
	}
	c.say(words...)
}

func (c *caller) backup(ctx context.Context) {
	var lines bytes.Buffer
	must(0, c.Export(ctx, &lines))
	c.say("export", bytes.Count(lines.Bytes(), []byte("\n")))
	must(0, c.Clear(ctx, time.Time{}, 0))
	c.say("clear")
	c.ids("list", c.List(ctx, client.Filter{}))
	for _, restore := range []bool{false, true} {
		told := must(c.ImportLines(ctx, bytes.NewReader(lines.Bytes()), restore))
		for status, n := range told.Statuses {
			c.say("importLines", told.Rows, status, n)
		}
	}
	c.ids("list", c.List(ctx, client.Filter{}))
}

func (c *caller) follow(ctx context.Context) {
	life, end := context.WithCancel(ctx)
	defer end()
	must(0, c.Follow(life, func(change *messagev1.Change) {
		if change.GetResync() {
			c.report("4", messagev1.Kind_KIND_STOP, 7_000)
		}
		for _, it := range change.GetItems() {
			c.say("follow", it.GetObject().GetId(), it.GetPositionMs())
			end()
		}
	}))
}

func (c *caller) continues(ctx context.Context) {
	words := []any{"continueWatching"}
	for _, it := range must(c.ContinueWatching(ctx, 0, 0)) {
		words = append(words, it.GetObject().GetId())
	}
	c.say(words...)
}

func (c *caller) ids(method string, records iter.Seq2[*messagev1.Item, error]) {
	words := []any{method}
	for it, err := range records {
		words = append(words, must(it, err).GetObject().GetId())
	}
	c.say(words...)
}

func (c *caller) failed(err error) {
	failed := must(asError(err))
	c.say("error", failed.Status, failed.Code)
}

func resume(it *messagev1.Item) any {
	if it == nil {
		return "none"
	}
	return it.GetResumeMs()
}

func name(status messagev1.Status) string {
	return strings.ToLower(strings.TrimPrefix(status.String(), "STATUS_"))
}

func asError(err error) (*client.Error, error) {
	failed, ok := errors.AsType[*client.Error](err)
	if !ok {
		return nil, fmt.Errorf("got %w, want a client.Error", err)
	}
	return failed, nil
}

// TestExamples runs the apps of examples/ against a process.
func TestExamples(t *testing.T) {
	t.Parallel()
	p, folder := start(t, t.TempDir()), javaScript(t)
	text, err := os.ReadFile("../../examples/node/player.mjs")
	if err != nil {
		t.Fatal(err)
	}
	player := filepath.Join(folder, "player.mjs")
	if err := os.WriteFile(player, text, 0o600); err != nil {
		t.Fatal(err)
	}
	shelf := []string{"PYTHONPATH=../../client/python", "python3", "-B", "../../examples/python/shelf.py"}
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"SECONDS=1", "node", "--no-warnings", player, "100", "Low Tide"}, "Low Tide from 0:00\nHistory:\n  Low Tide at 0:01\n"},
		{[]string{"SECONDS=1", "node", "--no-warnings", player, "100", "Low Tide"}, "Low Tide from 0:01\nHistory:\n  Low Tide at 0:02\n"},
		{append(shelf, "read", "Moby Dick", "120", "600"), "stored \n"},
		{append(shelf, "list"), "Moby Dick: page 120 of 600\n"},
		{append(shelf, "read", "Moby Dick", "600", "600"), "stored \n"},
		{append(shelf, "list"), ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := script(ctx, p.http, p.token, append([]string{"env"}, c.command...)...)
		cancel()
		if err != nil || got != c.want {
			t.Errorf("%q: got %q, %v, want %q", c.command, got, err, c.want)
		}
	}
}
