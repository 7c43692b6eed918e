//go:build e2e

package engine_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/playhead/playhead/e2e/engine"
)

// TestTable runs the table of docs/postgres.sql: a late report changes nothing, and neither a deleted item nor a cleared
// history comes back.
func TestTable(t *testing.T) {
	schema, err := os.ReadFile("../../docs/postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	c := postgres(t)
	if _, err := c.Exec(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	report := func(id string, position, minutesAgo int) string {
		return fmt.Sprintf("history_report('ann', 1, '%s', %d, 1000, now() - interval '1 day', now() - interval '%d minutes', '{\"at\":\"%[3]d\"}')", id, position, minutesAgo)
	}
	shown := "history_page('ann', 10)"
	for _, step := range []struct {
		call string
		want int // rows
	}{
		{report("a", 100, 90), 1},
		{report("a", 50, 100), 0}, // late
		{"history_point('ann', 1, 'a') WHERE resume_ms = 100 AND meta = '{\"at\":\"90\"}'", 1},
		{"history_continue('ann', 10)", 1},
		{report("a", 950, 80), 1},
		{"history_continue('ann', 10)", 0},
		{"history_point('ann', 1, 'a') WHERE completed AND resume_ms = 0", 1},
		{report("b", 200, 70), 1},
		{shown, 2},
		{"history_page('ann', 1)", 1},
		{"history_page('ann', 10, now() - interval '2 days')", 0},
		{"history_delete('ann', 1, 'a')", 1},
		{report("a", 300, 60), 0}, // made before the delete
		{shown, 1},
		{report("a", 300, -1), 1},
		{"history_point('ann', 1, 'a') WHERE NOT completed", 1},
		{"history_clear('ann')", 1},
		{report("b", 300, 50), 1}, // stored and not shown: made before the clear
		{report("c", 300, 40), 1},
		{"history_page('ann', 10) WHERE item_id <> 'a'", 0}, // a was played after the clear, by its clock
		{report("c", 400, -1), 1},
		{"history_point('ann', 1, 'c') WHERE meta = '{\"at\":\"-1\"}'", 1},
		{"history_expire()", 1},
		{"history WHERE user_id = 'ann'", 2},
	} {
		var got int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM "+step.call).Scan(&got); err != nil || got != step.want {
			t.Errorf("%s: %d rows, %v, want %d", step.call, got, err, step.want)
		}
	}
}

// postgres starts a server and returns a connection.
func postgres(t *testing.T) *pgx.Conn {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgres") //nolint:usetesting // the server has a user of its own, who cannot enter the test's folder
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755) //nolint:gosec // the same
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(engine.Postgres, engine.Config{Dir: dir, PortBase: 21000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), "postgres://postgres@"+e.Addr()+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) }) // the server is killed next
	return c
}
