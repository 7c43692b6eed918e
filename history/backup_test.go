package history_test

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// kept is the view of a record without the fields that a removal and a restore change.
func kept(r *history.Record) view {
	v := viewOf(r)
	v.Version, v.RemovedAt = 0, 0
	return v
}

// cuts draws removal times around the events.
func cuts() *rapid.Generator[int64] {
	return rapid.Map(rapid.Int64Range(0, 12), func(ms int64) int64 { return epoch + ms })
}

// backups draws exported records, some of them restored once or twice.
func backups() *rapid.Generator[*history.Record] {
	return rapid.Custom(func(t *rapid.T) *history.Record {
		r := folded(crowded()).Draw(t, "record")
		for range rapid.IntRange(0, 2).Draw(t, "times") {
			if r != nil && !r.Deleted() {
				r = r.Restore(cuts().Draw(t, "cut"))
			}
		}
		return r
	})
}

// TestRestore: a removed record is empty, and a restore brings everything back with its original times, however
// often it is repeated.
func TestRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, cut := folded(undeleted()).Draw(t, "record"), epoch+int64(rapid.IntRange(1000, 2000).Draw(t, "cut"))
		if r == nil {
			return
		}
		gone := history.Merge(r, (&history.Event{Kind: history.KindDelete, At: cut}).Record())
		back := history.Merge(gone, r.Restore(cut))
		if kept(back) != kept(r) || back.PlayedAt() != r.PlayedAt() || back.Oldest() != r.Oldest() {
			t.Fatalf("got  %+v\nwant %+v", back, r)
		}
		rules := new(history.Rulebook).Of(1)
		if rules.Completed(back) != rules.Completed(r) || rules.Resume(back) != rules.Resume(r) {
			t.Fatalf("completed %v, want %v", rules.Completed(back), rules.Completed(r))
		}
		if back.Version.Time() <= cut || back.After(cut) != back {
			t.Fatalf("the clear still covers %+v", back)
		}
		wantSame(t, "brought back twice", history.Merge(back, r.Restore(cut)), back)
		wantSame(t, "an import without", history.Merge(back, r), back)
		wantSame(t, "removed again", back.After(back.Version.Time()), nil)
		again := history.Merge(history.Merge(back, (&history.Event{Kind: history.KindDelete, At: back.Version.Time()}).Record()), r)
		if !again.Deleted() || again.Plays() != 0 || again.Watched() != 0 || again.Furthest() != 0 {
			t.Fatalf("removed again: %+v", again)
		}
	})
}

// TestMergeLawsOfBackups: Merge keeps its laws for removed and restored records.
func TestMergeLawsOfBackups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := backups().Draw(t, "a"), backups().Draw(t, "b"), backups().Draw(t, "c")
		ab, bc := history.Merge(a, b), history.Merge(b, c)
		wantSame(t, "commutative", history.Merge(b, a), ab)
		wantSame(t, "associative", history.Merge(a, bc), history.Merge(ab, c))
		wantSame(t, "absorbing", history.Merge(ab, a), ab)
		at := cuts().Draw(t, "after")
		wantSame(t, "after a clear", history.Merge(a.After(at), b.After(at)), ab.After(at))
	})
}

// TestMergeLawsOfDecisions: Merge keeps its laws for dismissed records and for later deletes.
func TestMergeLawsOfDecisions(t *testing.T) {
	decided := rapid.Custom(func(t *rapid.T) *history.Record {
		r := backups().Draw(t, "record")
		for range rapid.IntRange(0, 2).Draw(t, "decisions") {
			if r != nil && !r.Deleted() {
				r = r.Dismiss(cuts().Draw(t, "at"), rapid.Bool().Draw(t, "dismissed"))
			}
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := decided.Draw(t, "a"), decided.Draw(t, "b"), decided.Draw(t, "c")
		ab, bc := history.Merge(a, b), history.Merge(b, c)
		wantSame(t, "commutative", history.Merge(b, a), ab)
		wantSame(t, "associative", history.Merge(a, bc), history.Merge(ab, c))
		wantSame(t, "absorbing", history.Merge(ab, a), ab)
	})
}

// TestDismiss: a decision holds until the next play of the object, in any order of arrival.
func TestDismiss(t *testing.T) {
	report := func(at int64) *history.Record {
		return (&history.Event{Kind: history.KindProgress, At: epoch + at, Position: at}).Record()
	}
	first := report(10)
	dismissed := first.Dismiss(epoch+20, true)
	offered := dismissed.Dismiss(epoch+15, false) // by a slow clock
	for _, step := range []struct {
		what string
		r    *history.Record
		want int64
	}{
		{"played", first, 0},
		{"dismissed", dismissed, epoch + 20},
		{"dismissed by a clock that is behind", first.Dismiss(epoch+5, true), epoch + 10},
		{"offered again", offered, 0},
		{"dismissed again", offered.Dismiss(epoch+20, true), epoch + 21},
		{"an older report", history.Merge(report(19), dismissed), epoch + 20},
		{"a report of the same time", history.Merge(dismissed, report(20)), epoch + 20},
		{"played again", history.Merge(dismissed, report(21)), 0},
		{"deleted", history.Merge(dismissed, (&history.Event{Kind: history.KindDelete, At: epoch + 20}).Record()), 0},
		{"brought back", dismissed.Restore(epoch + 30), epoch + 20},
	} {
		if got := step.r.DismissedAt(); got != step.want {
			t.Errorf("%s: dismissed %d ms after the epoch, want %d", step.what, got-epoch, step.want-epoch)
		}
	}
}

// TestRestoreIntoWhatWentOn restores into a history with reports after the removal: the latest report stays and
// the rest comes back. Stays that begin just after the removal begin with it, so plays may differ.
func TestRestoreIntoWhatWentOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(undeleted(), 2, 30).Draw(t, "events")
		at := slices.MaxFunc(events, compareEvents).At
		cut := rapid.Int64Range(epoch-1, at-1).Draw(t, "cut")
		pause := rapid.SampledFrom([]int64{0, 16 * 60_000}).Draw(t, "pause after it")
		before, after := history.Merge(nil, nil), history.Merge(nil, nil)
		for i := range events {
			e := &events[i]
			if e.At <= cut {
				before = history.Merge(before, e.Record())
				continue
			}
			if e.At += pause; e.StartedAt > 0 {
				e.StartedAt += pause
			}
			after = history.Merge(after, e.Record())
		}
		if before == nil {
			return
		}
		gone := history.Merge(after, (&history.Event{Kind: history.KindDelete, At: cut}).Record())
		got, want := history.Merge(gone, before.Restore(cut)), fold(events)
		shown, wanted := kept(got), kept(want)
		if pause == 0 {
			shown.Plays, shown.CompletedAt, shown.Furthest = wanted.Plays, wanted.CompletedAt, wanted.Furthest
		}
		if shown != wanted || got.Version != want.Version {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestValidateRecord: every fold of events is legal, also after a restore.
func TestValidateRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := backups().Draw(t, "record")
		if r == nil || r.Deleted() {
			return
		}
		if err := r.Validate(epoch + 1000); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
	})
}

// TestValidateMany: a record beyond the bounds of its lists is legal too.
func TestValidateMany(t *testing.T) {
	r := history.Merge(viewings(0, 400), peaks(0, 100, 1000))
	for i := range 400 {
		e := history.Event{Kind: history.KindProgress, At: epoch + int64(i), StartedAt: epoch - 100_000, Watched: 5, Session: string(rune('a' + i))}
		r = history.Merge(r, e.Record())
	}
	if err := r.Validate(epoch + 10_000_000); err != nil || r.PlaysBefore == 0 || r.WatchedBefore == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// whole is a legal record with every field set.
func whole() *history.Record {
	v := func(at int64) history.Version { return history.VersionOf(epoch+at, history.RankStop) }
	return &history.Record{
		State: history.StateStopped, Early: true, Restored: true, Version: history.VersionOf(epoch+900, 0), Original: v(500),
		Position: 5, Session: "s", Device: "d", ResumePoint: history.ResumePoint{Version: v(400), Position: 40},
		Duration: 100, DurationVersion: v(300), Meta: keyed(v(200)), MetaVersion: v(300),
		Peaks:       []history.Peak{{At: epoch + 200, Position: 90}, {At: epoch + 300, Position: 80}},
		Completions: []history.Stay{{At: epoch + 200, Viewing: 1}, {At: epoch + 300, Viewing: 2}}, PlaysBefore: 3, PlaysBeforeAt: epoch + 100,
		Watches: []history.WatchedTime{{At: epoch + 200, Viewing: 1, Watched: 50, Began: epoch + 150}, {At: epoch + 300, Viewing: 2, Watched: 60, Began: epoch + 270, Speed: 200}}, WatchedBefore: 70, WatchedBeforeAt: epoch + 100,
		Start: history.Peak{At: epoch + 200, Position: 3}, Viewings: []history.Viewing{
			{Viewing: 1, Version: v(300), Position: 50, State: history.StateStopped, Device: "d", Start: history.Peak{At: epoch + 200, Position: 7}},
			{Viewing: 2, Version: v(300), Position: 60, State: history.StateFinished, AtEnd: true},
		},
		Lows:      []history.Low{{At: epoch + 250, Viewing: 1, Duration: 100}, {At: epoch + 260, Viewing: 1, Length: 10}},
		Starts:    []history.Start{{At: epoch + 190, Viewing: 1}, {At: epoch + 195, Viewing: 2, Position: 3, Duration: 9}},
		RemovedAt: epoch + 800, Unknown: "\xe8\x3f\x05", UnknownVersion: v(300),
		Dismissed: history.VersionOf(epoch+950, history.RankOffered),
	}
}

// keyed has a value at the newest version and a removed key at an older one.
func keyed(v history.Version) history.Meta {
	newest := v + 400
	m, _ := history.MetaOf([]history.MetaEntry[string]{{Key: "k", Value: "v", Version: newest}, {Key: "removed", Removed: true, Version: v}})
	return m
}

func TestValidateRefuses(t *testing.T) {
	if err := whole().Validate(epoch + 1000); err != nil {
		t.Fatal(err)
	}
	type change = func(*history.Record)
	for field, changes := range map[string][]change{
		"state":                            {func(r *history.Record) { r.State = history.StateDeleted }, func(r *history.Record) { r.State = 0 }, func(r *history.Record) { r.State = history.StatePlaying }, func(r *history.Record) { r.Version |= 2 }, func(r *history.Record) { r.Original |= 2 }},
		"event_time":                       {func(r *history.Record) { r.Version += 4 * 6000 }},
		"details.position_ms":              {func(r *history.Record) { r.Position, r.Peaks = history.MaxPosition+1, nil }, func(r *history.Record) { r.Position = -1 }},
		"duration_ms":                      {func(r *history.Record) { r.Duration = -1 }},
		"session":                          {func(r *history.Record) { r.Session = "\xff" }},
		"device":                           {func(r *history.Record) { r.Device = string(make([]byte, 129)) }},
		"meta":                             {func(r *history.Record) { r.Meta = history.NewMeta(map[string]string{"": "v"}) }, func(r *history.Record) { r.Meta = history.NewMeta(map[string]string{"k": string(make([]byte, 1024))}) }},
		"details.meta":                     {func(r *history.Record) { r.Meta = "" }, func(r *history.Record) { r.MetaVersion = 4 }, func(r *history.Record) { r.Meta = keyed(r.Version + 4) }, func(r *history.Record) { r.Meta = keyed(5) }},
		"details.duration":                 {func(r *history.Record) { r.Duration = 0 }, func(r *history.Record) { r.DurationVersion = r.Version + 4 }},
		"details.unknown":                  {func(r *history.Record) { r.UnknownVersion = 0 }, func(r *history.Record) { r.Unknown = string(make([]byte, 5000)) }},
		"details.dismissed":                {func(r *history.Record) { r.Dismissed = -4 }, func(r *history.Record) { r.Dismissed++ }, func(r *history.Record) { r.Dismissed += 4 * 6000 }, func(r *history.Record) { r.Dismissed = 4 }},
		"details.resume_point":             {func(r *history.Record) { r.Early = false }, func(r *history.Record) { r.ResumePoint.Version = 0 }, func(r *history.Record) { r.ResumePoint.Version = r.Version + 4 }},
		"details.resume_point.position_ms": {func(r *history.Record) { r.ResumePoint.Position = history.MaxPosition + 1 }, func(r *history.Record) { r.ResumePoint.Position = -1 }},
		"details.removed":                  {func(r *history.Record) { r.RemovedAt = epoch + 900 }, func(r *history.Record) { r.RemovedAt = -1 }},
		"played_at":                        {func(r *history.Record) { r.Restored = false }, func(r *history.Record) { r.RemovedAt = epoch + 499 }},
		"details.restored":                 {func(r *history.Record) { r.Original, r.RemovedAt, r.State = 0, 0, history.StatePlaying }},
		"details.peaks":                    {func(r *history.Record) { r.Peaks = make([]history.Peak, 9) }},
		"details.peaks[0]": {
			func(r *history.Record) { r.Peaks[0].Position = history.MaxPosition + 1 }, func(r *history.Record) { r.Peaks[0].Position = 80 },
			func(r *history.Record) { r.Peaks[0].At = r.Peaks[1].At }, func(r *history.Record) { r.Peaks[0].At = 0 },
		},
		"details.peaks[1]":                      {func(r *history.Record) { r.Peaks[1].Position = 5 }},
		"details.plays_before":                  {func(r *history.Record) { r.PlaysBeforeAt = 0 }, func(r *history.Record) { r.PlaysBefore = 1 << 51 }, func(r *history.Record) { r.PlaysBeforeAt = -5 }},
		"details.completions":                   {func(r *history.Record) { r.Completions = make([]history.Stay, 129) }},
		"details.completions[0]":                {func(r *history.Record) { r.Completions[0].At = epoch + 100 }, func(r *history.Record) { r.Completions[0].At = 5 }},
		"details.completions[1]":                {func(r *history.Record) { r.Completions[1].Viewing = 1 }, func(r *history.Record) { r.Completions[1].At = epoch + 150 }},
		"details.completions[0].length_ms":      {func(r *history.Record) { r.Completions[0].Length = -1 }, func(r *history.Record) { r.Completions[0].Length = epoch }},
		"details.completions[0].duration_ms":    {func(r *history.Record) { r.Completions[0].Duration = -1 }},
		"details.completions[0].position_ms":    {func(r *history.Record) { r.Completions[0].Position = -1 }},
		"details.completions[0].reach_ms":       {func(r *history.Record) { r.Completions[0].Reach = history.MaxPosition + 1 }},
		"details.completions[0].began":          {func(r *history.Record) { r.Completions[0].Began = epoch + 201 }},
		"details.lows":                          {func(r *history.Record) { r.Lows = make([]history.Low, 65) }},
		"details.lows[1]":                       {func(r *history.Record) { r.Lows[1].Duration = 100 }, func(r *history.Record) { r.Lows[1].At = epoch + 240 }},
		"details.starts":                        {func(r *history.Record) { r.Starts = make([]history.Start, 129) }},
		"details.starts[1]":                     {func(r *history.Record) { r.Starts[1].At = epoch + 180 }},
		"details.starts[0].position_ms":         {func(r *history.Record) { r.Starts[0].Position = -1 }},
		"details.starts[0].duration_ms":         {func(r *history.Record) { r.Starts[0].Duration = -1 }},
		"details.watched_before":                {func(r *history.Record) { r.WatchedBefore = -1 }, func(r *history.Record) { r.WatchedBefore = 1 << 51 }},
		"details.watches":                       {func(r *history.Record) { r.Watches = slices.Repeat(r.Watches, 65) }},
		"details.watches[0].watched_ms":         {func(r *history.Record) { r.Watches[0].Watched = 0 }, func(r *history.Record) { r.Watches[0].Watched = 51 }},
		"details.watches[1].watched_ms":         {func(r *history.Record) { r.Watches[1].Watched = 61 }},
		"details.watches[0].started_at":         {func(r *history.Record) { r.Watches[0].Began = epoch + 200 }, func(r *history.Record) { r.Watches[0].Began = 5 }},
		"details.watches[0].speed":              {func(r *history.Record) { r.Watches[0].Speed = 24 }, func(r *history.Record) { r.Watches[0].Speed = 401 }},
		"details.watches[1]":                    {func(r *history.Record) { r.Watches[1].Viewing = 1 }},
		"details.start":                         {func(r *history.Record) { r.Start.At = epoch + 501 }, func(r *history.Record) { r.Position, r.Session, r.Device, r.Peaks = 0, "", "", nil }},
		"details.start.time":                    {func(r *history.Record) { r.Start.At = 5 }, func(r *history.Record) { r.Start.At = -5 }},
		"details.start.position_ms":             {func(r *history.Record) { r.Start.Position = history.MaxPosition + 1 }, func(r *history.Record) { r.Start.Position = -1 }},
		"details.viewings":                      {func(r *history.Record) { r.Viewings = make([]history.Viewing, 17) }},
		"details.viewings[0]":                   {func(r *history.Record) { r.Viewings[0].Viewing = history.ViewingOf("s") }, func(r *history.Record) { r.Viewings[0].Version, r.Viewings[0].Start = 5, history.Peak{} }},
		"details.viewings[0].state":             {func(r *history.Record) { r.Viewings[0].State = 0 }, func(r *history.Record) { r.Viewings[0].State = history.StatePlaying }, func(r *history.Record) { r.Viewings[0].State = history.StateDeleted }},
		"details.viewings[0].device":            {func(r *history.Record) { r.Viewings[0].Device = string(make([]byte, 129)) }, func(r *history.Record) { r.Viewings[0].Device = "\xff" }},
		"details.viewings[0].start":             {func(r *history.Record) { r.Viewings[0].Start.At = epoch + 301 }},
		"details.viewings[0].start.position_ms": {func(r *history.Record) { r.Viewings[0].Start.Position = history.MaxPosition + 1 }},
		"details.viewings[1]":                   {func(r *history.Record) { r.Viewings[1].Viewing = 1 }, func(r *history.Record) { r.Viewings[1].Version -= 400 }},
		"details.viewings[1].position_ms":       {func(r *history.Record) { r.Viewings[1].Position = history.MaxPosition + 1 }, func(r *history.Record) { r.Viewings[1].Position = -1 }},
	} {
		for i, c := range changes {
			r := whole()
			c(r)
			err := r.Validate(epoch + 1000)
			got, ok := errors.AsType[*history.FieldError](err)
			if !ok || got.Field != field {
				t.Errorf("%s, change %d: got %v", field, i, err)
			}
		}
	}
	r := whole()
	r.Restored, r.Original, r.Version = false, 0, r.Original
	r.RemovedAt = epoch + 250
	if err := r.Validate(epoch + 1000); err == nil { // the record has peaks older than the removal
		t.Error("what a delete has removed is legal")
	}
}

// TestOldest moves each time of a record back in turn: Oldest must follow.
func TestOldest(t *testing.T) {
	v := reflect.ValueOf(whole()).Elem()
	for i := range v.NumField() {
		r := whole()
		f := reflect.ValueOf(r).Elem().Field(i)
		name := v.Type().Field(i).Name
		switch at := epoch - 7; {
		case name == "CellTime" || name == "Revision" || name == "RemovedAt" || name == "Version":
			continue
		case f.Type() == reflect.TypeFor[history.Version]():
			f.SetInt(at << 2)
		case name == "ResumePoint":
			r.ResumePoint.Version = history.Version(at << 2)
		case name == "Start":
			r.Start.At = at
		case name == "Viewings":
			r.Viewings[1].Start.At = at
		case f.Kind() == reflect.Slice:
			f.Index(0).FieldByName("At").SetInt(at)
		case f.Kind() == reflect.Int64 && f.Int() > epoch/2:
			f.SetInt(at)
		default:
			continue
		}
		if got := r.Oldest(); got != epoch-7 {
			t.Errorf("%s: the oldest is %d ms after the epoch", name, got-epoch)
		}
	}
	if got := cmp.Compare(whole().Oldest(), epoch+100); got != 0 {
		t.Errorf("got %d", whole().Oldest()-epoch)
	}
}

// TestOldestAfterRemoval: a stay that begins just after a removal begins with it, but Oldest is the first
// report.
func TestOldestAfterRemoval(t *testing.T) {
	for name, position := range map[string]int64{"below the end": 10_000, "at the end": 99_000} {
		report := history.Event{Kind: history.KindProgress, At: epoch + 3000, Position: position, Duration: 100_000, Session: "s"}
		stop := history.Event{Kind: history.KindStop, At: epoch + 4000, Position: 50_000, Duration: 100_000, Session: "t"}
		removal := history.Event{Kind: history.KindDelete, At: epoch}
		r := fold([]history.Event{removal, report, stop})
		if got := r.Oldest() - epoch; got != 3000 {
			t.Errorf("%s: the oldest report is %d ms after the removal, want 3000", name, got)
		}
		if r.Restore(epoch + 2000).Restored {
			t.Errorf("%s: nothing comes back, but the record says that it was restored", name)
		}
	}
}

// TestMovedAfterARemoval: a viewing just after a removal is one play, also in a history without the removal, or with
// a later one.
func TestMovedAfterARemoval(t *testing.T) {
	seen := history.Event{Kind: finish, At: epoch + 8*second, StartedAt: epoch + 2*second, Position: 29 * second, Duration: 100 * second, Session: "s", Device: "tv"}
	r := history.Merge(seen.Record(), (&history.Event{Kind: history.KindDelete, At: epoch}).Record())
	for name, moved := range map[string]*history.Record{"as it is": r, "without the removal": r.WithoutRemoval(), "after a later one": r.Restore(epoch + 9*second)} {
		if n := moved.Plays(); n != 1 {
			t.Errorf("%s: %d plays, want 1", name, n)
		}
	}
}
