package allinone_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// numbered is a heartbeat about film n at a time.
func numbered(n int, when time.Time) beat {
	b := at(0, "stop", minutes(20))
	b.Object.ID, b.EventTime = fmt.Sprint(n), stamp(when)
	return b
}

// fill reports films [from, to), each at its time.
func (p *player) fill(from, to int, when func(n int) time.Time) {
	p.Helper()
	for ; from < to; from += 1000 {
		var beats []beat
		for n := from; n < min(to, from+1000); n++ {
			beats = append(beats, numbered(n, when(n)))
		}
		p.send(strings.TrimSpace(strings.Repeat("stored ", len(beats))), beats...)
	}
}

func (p *player) page(query string) (ids []string, cursor string) {
	p.Helper()
	status, text := p.ask("GET /v1/history?"+query, "")
	var page struct {
		Items   []seen
		Cursor  string
		HasMore bool `json:"has_more"`
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK || page.HasMore != (page.Cursor != "") {
		p.Fatalf("%s: %d %s: %v", query, status, text, err)
	}
	for _, it := range page.Items {
		ids = append(ids, it.Object.ID)
	}
	return ids, page.Cursor
}

func (p *player) walk(limit int, between func(page int, ids []string)) (all []string) {
	p.Helper()
	for n, cursor := 0, ""; n == 0 || cursor != ""; n++ {
		var ids []string
		query := fmt.Sprint("limit=", limit)
		if cursor != "" {
			query += "&cursor=" + cursor
		}
		ids, cursor = p.page(query)
		all = append(all, ids...)
		between(n, ids)
	}
	return all
}

// TestPagesWhileTheyChange is B11: 500 rows of one millisecond. Between any two pages one row is added before
// them, one read row is removed, and one unread row. Added rows may follow the oldest.
func TestPagesWhileTheyChange(t *testing.T) {
	p := stage(t).player(t, "ann", "http")
	then := time.Now().Add(-time.Hour)
	p.fill(0, 500, func(int) time.Time { return then })
	removed := map[string]bool{}
	got := p.walk(7, func(page int, ids []string) {
		p.send("stored", numbered(1000+page, time.Now()))
		ahead, _ := p.page("limit=100")
		unread := fmt.Sprint(499 - page) // somewhere
		if page%2 == 0 && !slices.Contains(ids, unread) {
			unread = fmt.Sprint(page)
		}
		for _, id := range []string{ids[0], unread, ahead[len(ahead)-1]} {
			removed[id] = true
			if status, text := p.ask("DELETE /v1/history/1/"+id, ""); status != http.StatusOK {
				t.Fatalf("delete %s: %d %s", id, status, text)
			}
		}
	})
	times := map[string]int{}
	for _, id := range got {
		if times[id]++; times[id] > 1 {
			t.Errorf("%s is there again", id)
		}
	}
	for n := range 500 {
		if id := fmt.Sprint(n); times[id] == 0 && !removed[id] {
			t.Errorf("%s is skipped", id)
		}
	}
}

// TestManyRows is B13: pages of ten thousand rows, half of them of one day, take no more work than pages of a
// thousand. Work is measured in allocations: time would depend on the machine's load.
func TestManyRows(t *testing.T) {
	h := stage(t)
	now := time.Now()
	few, many := h.player(t, "few", "http"), h.player(t, "many", "http")
	rows := 10_000
	if testing.Short() {
		rows = 4000
	}
	spread := func(n int) time.Time {
		if n < rows/2 {
			return now.Add(-time.Duration(n+1) * 10 * time.Second)
		}
		return now.Add(-time.Duration(n) * 10 * time.Minute)
	}
	few.fill(0, 1000, spread)
	many.fill(0, rows, spread)
	h.clean(3 * time.Minute)
	least := func(p *player) uint64 { // without most background work
		var took []uint64
		for range 21 {
			before := allocations()
			if ids, _ := p.page("limit=20"); len(ids) != 20 || ids[0] != "0" {
				t.Fatalf("got %v", ids)
			}
			took = append(took, allocations()-before)
		}
		return slices.Min(took)
	}
	small, large := least(few), least(many)
	t.Logf("newest 20 of 1,000: %d allocations, of %d: %d", small, rows, large)
	if large > 2*small {
		t.Errorf("newest 20 of %d take %d allocations, of 1,000 %d", rows, large, small)
	}
	began, n := time.Now(), 0
	all := many.walk(100, func(int, []string) { n++ })
	t.Logf("%d pages of 100: %v each", n, time.Since(began)/time.Duration(n))
	if n != rows/100 || len(all) != rows || all[rows-1] != strconv.Itoa(rows-1) || !slices.IsSortedFunc(all, func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("got %d rows on %d pages, the last is %s", len(all), n, all[len(all)-1])
	}
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// TestUsersInABatch is B12: reports of many users share one batch, and each user gets their own answers.
func TestUsersInABatch(t *testing.T) {
	h := stage(t)
	var all sync.WaitGroup
	for n := range 50 {
		p, position := h.player(t, fmt.Sprint("user", n), "http"), minutes(float64(n+1))
		all.Go(func() {
			r := p.send("stored stored", at(time.Minute, "stop", position), numbered(100+n, time.Now()))
			if r[0].Record.Position != position || r[1].Record.Object.ID != fmt.Sprint(100+n) {
				t.Errorf("user %d was told %+v, %+v", n, r[0].Record, r[1].Record)
			}
		})
	}
	all.Wait()
	for n := range 50 {
		p := h.player(t, fmt.Sprint("user", n), "http")
		if ids, _ := p.page("limit=10"); p.sees().Position != minutes(float64(n+1)) || !slices.Equal(ids, []string{fmt.Sprint(100 + n), "7"}) {
			t.Errorf("user %d sees %+v and %v", n, p.sees(), ids)
		}
	}
}

// TestMarkedSeason is B28 and B29: a marked season has titles and a next episode, and repeated marks change
// nothing. Marks concurrent with a delete and a clear restore nothing.
func TestMarkedSeason(t *testing.T) {
	p := stage(t).player(t, "ann", "http")
	var objects []string
	for n := 1; n <= 10; n++ {
		objects = append(objects, fmt.Sprintf(`{"id":"e%d","type":2,"meta":{"title":"Part %d","series":"Fog","season":"S01","episode":"E%02d"}}`, n, n, n))
	}
	mark := func(more string) (statuses []string, records string) {
		t.Helper()
		status, text := p.ask("POST /v1/history/mark", `{"mark":"watched","unless_completed":true`+more+`,"objects":[`+strings.Join(objects, ",")+`]}`)
		var answer struct {
			Results []struct {
				Status string
				Record json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, text, err)
		}
		for _, r := range answer.Results {
			statuses, records = append(statuses, r.Status), records+string(r.Record)
		}
		return slices.Compact(statuses), records
	}
	next := func() string {
		t.Helper()
		_, text := p.ask("GET /v1/continue", "")
		var page struct {
			Items []struct {
				Meta map[string]string
				Next json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, it := range page.Items {
			all = append(all, it.Meta["title"]+" "+string(it.Next))
		}
		return strings.Join(all, ", ")
	}
	statuses, first := mark("")
	if !slices.Equal(statuses, []string{"stored"}) || strings.Count(first, `"title":"Part `) != 10 {
		t.Errorf("marked: %v %s", statuses, first)
	}
	if got, want := next(), `Part 10 {"season":1,"episode":11}`; got != want {
		t.Errorf("next is %s, want %s", got, want)
	}
	for range 10 {
		if statuses, again := mark(""); !slices.Equal(statuses, []string{"unchanged"}) || again != first {
			t.Errorf("again: %v %s, want %s", statuses, again, first)
		}
	}
	p.ask("DELETE /v1/history/2/e10", "")
	if statuses, _ := mark(`,"only_recorded":true`); !slices.Equal(statuses, []string{"unchanged"}) {
		t.Errorf("beside a delete: %v", statuses)
	}
	if got, want := next(), `Part 9 {"season":1,"episode":10}`; got != want {
		t.Errorf("after a delete next is %s, want %s", got, want)
	}
	p.ask("DELETE /v1/history", "")
	before := stamp(time.Now().Add(-time.Minute))
	if statuses, _ := mark(`,"event_time":"` + before + `"`); !slices.Equal(statuses, []string{"cleared"}) {
		t.Errorf("from before a clear: %v", statuses)
	}
	if got := next(); got != "" {
		t.Errorf("after a clear next is %s", got)
	}
}
