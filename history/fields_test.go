package history_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/playhead/playhead/history"
)

// fill sets every field of a value, recursively, to something other than zero.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n+i)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(n + 1))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n + 1))
	default:
		panic("fill: teach me " + v.Kind().String())
	}
}

// notContent lists the bookkeeping fields: Same tells them apart, but Merge does not fold them.
var notContent = map[string]bool{"Revision": true, "CellTime": true}

// TestEveryFieldOfARecord sets one field at a time. [history.Same] sees it, Merge with a record without it
// keeps it in either order, and a later delete removes it.
func TestEveryFieldOfARecord(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		t.Run(f.Name, func(t *testing.T) {
			with := filled(f.Name)
			without := base()
			if got := history.Same(with, without); got != notContent[f.Name] {
				t.Errorf("Same of a record with and one without: %v", got)
			}
			if notContent[f.Name] || f.Name == "Partial" { // partial only if both are
				return
			}
			one, other := history.Merge(with, without), history.Merge(without, with)
			if !history.Same(one, other) {
				t.Errorf("the fold depends on the order:\n%+v\n%+v", one, other)
			}
			if !history.Same(one, history.Merge(one, with)) || !history.Same(one, history.Merge(without, one)) {
				t.Errorf("the fold with what it contains changes it: %+v", one)
			}
			got, want := reflect.ValueOf(*one).FieldByIndex(f.Index), reflect.ValueOf(*with).FieldByIndex(f.Index)
			if !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Errorf("the fold has %v, want %v", got, want)
			}
		})
	}
}

// base is a record that allows every field to be set.
func base() *history.Record {
	return &history.Record{Version: history.VersionOf(epoch, history.RankProgress), State: history.StatePlaying, Early: true}
}

// filled is base with one more field and the fields it requires.
func filled(name string) *history.Record {
	r := base()
	fill(reflect.ValueOf(r).Elem().FieldByName(name), 40)
	at := epoch - 1000
	v := history.VersionOf(at, history.RankStop)
	switch name {
	case "Version":
		r.Version = history.VersionOf(epoch+1, history.RankStop)
	case "Early":
		r.Early = false
	case "ResumePoint":
		r.ResumePoint = history.ResumePoint{Version: v, Position: 7}
	case "Duration", "DurationVersion":
		r.Duration, r.DurationVersion = 9, v
	case "Meta", "MetaVersion":
		r.Meta, r.MetaVersion = history.NewMeta(map[string]string{"k": "v"}), v
	case "Unknown", "UnknownVersion":
		r.Unknown, r.UnknownVersion = "\x01", v
	case "PlaysBefore", "PlaysBeforeAt":
		r.PlaysBefore, r.PlaysBeforeAt = 3, at
	case "WatchedBefore", "WatchedBeforeAt":
		r.WatchedBefore, r.WatchedBeforeAt = 4, at
	case "RemovedAt":
		r.RemovedAt = at
	case "Restored", "Original":
		r.RemovedAt, r.Restored, r.Original = at, true, history.VersionOf(at-1000, history.RankStop)
		r.Version += 4 // at an equal version the original report would win
	case "State":
		r.State = history.StateStopped
	}
	return r
}

// TestEveryFieldOfAnEvent changes one field at a time: the record differs and has the value in its field of
// that name. The key is not part of the record.
func TestEveryFieldOfAnEvent(t *testing.T) {
	event := func() *history.Event {
		return &history.Event{
			Key:  history.Key{UID: "u", Object: history.Object{ID: "1", Type: 1}},
			Kind: history.KindProgress, At: epoch, Position: 300_000, Duration: 600_000, Session: "s", Device: "d",
			Meta: history.NewMeta(map[string]string{"k": "v"}), StartedAt: epoch - 5000, Watched: 5400, Speed: 110,
		}
	}
	base := event().Record()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Event]()) {
		e := event()
		value := reflect.ValueOf(e).Elem().FieldByIndex(f.Index)
		other(value)
		e.Clamp() // the speed only matters here
		r := e.Record()
		if same, want := history.Same(r, base), f.Name == "Key"; same != want {
			t.Errorf("%s: the same record: %v, want %v\n%+v", f.Name, same, want, r)
		}
		kept := reflect.ValueOf(*r).FieldByName(f.Name)
		if kept.IsValid() && !reflect.DeepEqual(kept.Interface(), value.Interface()) {
			t.Errorf("%s: the record has %v, want %v", f.Name, kept, value)
		}
	}
}

// TestEveryTextOfAnEventIsOwned makes each text a substring of a larger one, which must not stay in memory.
func TestEveryTextOfAnEventIsOwned(t *testing.T) {
	batch := strings.Repeat("x", 1000)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Event]()) {
		r, was := new(history.Record), new(history.Record)
		text := reflect.ValueOf(r).Elem().FieldByName(f.Name)
		if f.Type.Kind() != reflect.String || !text.IsValid() {
			continue
		}
		text.SetString(batch[10:20])
		r.Own(was)
		if own := text.String(); own != batch[10:20] || unsafe.StringData(own) == unsafe.StringData(batch[10:20]) {
			t.Errorf("%s: %q is still a part of the batch, or another text", f.Name, own)
		}
		owned := text.String()
		reflect.ValueOf(was).Elem().FieldByName(f.Name).SetString(owned)
		text.SetString(batch[30:40])
		if r.Own(was); unsafe.StringData(text.String()) != unsafe.StringData(owned) {
			t.Errorf("%s: a text that is owned is copied", f.Name)
		}
	}
}

// TestEveryFieldOfAnEventIsBounded makes one field at a time far too large or too small. Other tests cover the
// key.
func TestEveryFieldOfAnEventIsBounded(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Event]()) {
		e := &history.Event{Key: history.Key{UID: "u", Object: history.Object{ID: "1", Type: 1}}, Kind: history.KindProgress, At: epoch}
		switch v := reflect.ValueOf(e).Elem().FieldByIndex(f.Index); v.Kind() {
		case reflect.String:
			text := strings.Repeat("x", 2000)
			if v.Type() == reflect.TypeFor[history.Meta]() {
				text = string(history.NewMeta(map[string]string{"k": text}))
			}
			v.SetString(text)
		case reflect.Int64:
			v.SetInt(-1)
		case reflect.Uint8:
			v.SetUint(255)
		default:
			continue
		}
		if err := e.Validate(); err == nil {
			t.Errorf("%s has no bound", f.Name)
		}
	}
}

// TestEveryTextOfARecordIsBounded makes one text at a time of an imported record far too long.
func TestEveryTextOfARecordIsBounded(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		if f.Type != reflect.TypeFor[string]() {
			continue
		}
		r := whole()
		reflect.ValueOf(r).Elem().FieldByIndex(f.Index).SetString(strings.Repeat("x", history.MaxUnknown+1))
		if err := r.Validate(epoch + 1000); err == nil {
			t.Errorf("%s has no bound", f.Name)
		}
	}
}

// other changes a legal value: times move an hour back, other numbers are halved.
func other(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Int64 && v.Int() > epoch/2:
		v.SetInt(v.Int() - 3_600_000)
	case v.Kind() == reflect.Int64:
		v.SetInt(v.Int() / 2)
	case v.Kind() == reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	default:
		fill(v, 40)
	}
}
