package imports

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// tableForms, in the order in which they are tried.
var tableForms = []tableForm{
	{name: "Netflix viewing activity", columns: []string{"Profile Name", "Start Time", "Duration", "Title", "Supplemental Video Type", "Bookmark"}, row: netflixLong},
	{name: netflixShort, columns: []string{"Title", "Date"}, exact: true, row: netflixShortRow},
	{name: "Yamtrack", columns: []string{"media_id", "source", "media_type", "status"}, row: yamtrack},
	{name: "Tautulli", columns: []string{"rating_key", "started", "stopped", "media_type"}, row: tautulliTable},
	{name: "Libre.fm", columns: []string{"time", "artist", "track", "album"}, row: libreFM},
	{name: "replay trace", columns: []string{"user_id", "video_id", "time_ms", "play_time_ms", "duration_ms"}, row: trace},
}

// jsonForms, in the order in which they are tried.
var jsonForms = []jsonForm{
	{name: "Trakt", keys: []string{"watched_at", "action", "type"}, read: trakt},
	{name: "YouTube Takeout (JSON)", keys: []string{"title", "time", "products"}, read: youTube},
	{name: "Spotify extended history", keys: []string{"ts", "ms_played"}, read: spotify},
	{name: "Spotify account data", keys: []string{"endTime", "msPlayed"}, read: spotifyBasic},
	{name: "ListenBrainz", keys: []string{"listened_at", "track_metadata"}, read: listenBrainz},
	{name: "FreeTube", keys: []string{"videoId", "timeWatched"}, read: freeTube},
	{name: "Tautulli", keys: []string{"rating_key", "started", "stopped", "media_type"}, read: tautulliJSON},
	{name: "gPodder", keys: []string{"podcast", "episode", "action", "timestamp"}, read: gPodder},
	{name: "Maloja", keys: []string{"time", "track", "origin"}, read: maloja},
	{name: "Pano Scrobbler", keys: []string{"timeMs", "track", "artist"}, read: pano},
}

// trace reads the traces of `replay`: times are starts, and all objects have the type of videos.
func trace(_ *Source, c *cells) (*row, error) {
	r := &row{kind: video, user: c.get("user_id"), object: c.get("video_id"), device: "replay", placed: true}
	if err := c.missing("user_id"); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		ms   *int64
	}{{"time_ms", &r.start}, {"play_time_ms", &r.played}, {"duration_ms", &r.duration}} {
		var err error
		if *f.ms, err = number(c.get(f.name), "ms"); err != nil {
			return nil, err
		}
	}
	r.position = r.played
	if r.played == 0 {
		return nil, notViewing("played for 0 ms")
	}
	return r, nil
}

// mappedObject reads a JSON object by the map.
func (s *Source) mappedObject(b []byte) (*row, error) {
	m := s.options.Map
	var values map[string]jsontext.Value
	values, err := object[map[string]jsontext.Value](b)
	if err != nil {
		return nil, err
	}
	var wrong error
	r, field, err := m.row(&s.options, func(i int) string {
		text, err := valueAt(values, m.fields[i].column)
		if err != nil && wrong == nil {
			wrong = bad(m.fields[i].field, "%s", err)
		}
		return text
	})
	if wrong != nil {
		return nil, wrong
	}
	_ = field
	return r, err
}

// valueAt returns the text or number at a path such as "video.id", "" if it is absent.
func valueAt(values map[string]jsontext.Value, path string) (string, error) {
	v, ok := values[path]
	if key, rest, nested := strings.Cut(path, "."); !ok && nested && values[key] != nil {
		inner, err := object[map[string]jsontext.Value](values[key])
		if err != nil {
			return "", bad("", "want an object")
		}
		return valueAt(inner, rest)
	}
	if !ok {
		return "", nil
	}
	var l label
	if err := l.UnmarshalJSON(v); err != nil {
		return "", err
	}
	return string(l), nil
}

func sorted(keys map[string]bool) []string { return slices.Sorted(maps.Keys(keys)) }
