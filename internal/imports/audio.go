package imports

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// leastStream is the time, in milliseconds, from which Spotify counts a stream.
const leastStream = 30_000

// spotifyPlayed has no address, agent and user: they are not read.
type spotifyPlayed struct {
	TS          string `json:"ts"`
	Played      label  `json:"ms_played"`
	Track       string `json:"master_metadata_track_name"`
	Artist      string `json:"master_metadata_album_artist_name"`
	Album       string `json:"master_metadata_album_album_name"`
	TrackURI    string `json:"spotify_track_uri"`
	Episode     string `json:"episode_name"`
	Show        string `json:"episode_show_name"`
	EpisodeURI  string `json:"spotify_episode_uri"`
	Audiobook   string `json:"audiobook_title"`
	BookURI     string `json:"audiobook_uri"`
	Chapter     string `json:"audiobook_chapter_title"`
	ChapterURI  string `json:"audiobook_chapter_uri"`
	ReasonEnd   string `json:"reason_end"`
	Skipped     bool   `json:"skipped"`
	IncognitoOn bool   `json:"incognito_mode"`
}

func spotify(_ *Source, b []byte) (*row, error) {
	in, err := object[spotifyPlayed](b)
	if err != nil {
		return nil, err
	}
	r := &row{kind: audio, state: stopped, object: cmp.Or(in.TrackURI, in.EpisodeURI, in.ChapterURI, in.BookURI)}
	if r.played, err = number(string(in.Played), "ms"); err != nil {
		return nil, bad("ms_played", "%s", err)
	}
	switch {
	case in.IncognitoOn:
		return nil, notViewing("a private session")
	case r.object == "":
		return nil, notViewing("nothing was played")
	case in.Skipped && r.played < leastStream:
		return nil, notViewing("skipped within 30 s")
	case in.ReasonEnd == "trackdone":
		r.state = finished
	}
	r.put("title", cmp.Or(in.Track, in.Episode, in.Chapter, in.Audiobook))
	r.put("artist", in.Artist)
	r.put("album", in.Album)
	r.put("series", cmp.Or(in.Show, in.Audiobook))
	if r.end, err = when("ts", in.TS); err != nil {
		return nil, err
	}
	r.start = r.end - r.played
	return r, nil
}

type spotifyBasicPlayed struct {
	EndTime string `json:"endTime"`
	Played  label  `json:"msPlayed"`
	Artist  string `json:"artistName"`
	Track   string `json:"trackName"`
	Podcast string `json:"podcastName"`
	Episode string `json:"episodeName"`
}

func spotifyBasic(_ *Source, b []byte) (*row, error) {
	in, err := object[spotifyBasicPlayed](b)
	if err != nil {
		return nil, err
	}
	r := song(cmp.Or(in.Artist, in.Podcast), cmp.Or(in.Track, in.Episode))
	if r.played, err = number(string(in.Played), "ms"); err != nil {
		return nil, bad("msPlayed", "%s", err)
	}
	end, err := time.Parse("2006-01-02 15:04", in.EndTime)
	if err != nil {
		return nil, bad("endTime", "%s is not a time such as 2026-01-02 15:04", shown(in.EndTime))
	}
	if r.state = stopped; r.played >= leastStream {
		r.state = finished
	}
	r.end = end.UnixMilli() // always UTC
	r.start = r.end - r.played
	return r, r.named()
}

// song returns the row of a track without an id of an authority.
func song(artist, title string) *row {
	r := &row{kind: audio, state: finished}
	artist, title = strings.TrimSpace(artist), strings.TrimSpace(title)
	if artist != "" && title != "" {
		r.object = "song:" + strings.ToLower(artist+"/"+title)
	}
	r.put("title", title)
	r.put("artist", artist)
	return r
}

func (r *row) named() error {
	if r.object == "" {
		return bad("", "want an artist and a title")
	}
	return nil
}

// musicBrainz names a recording by its id, if there is one.
func (r *row) musicBrainz(recording string) {
	if len(recording) == 36 {
		r.object = "musicbrainz:" + strings.ToLower(recording)
		r.put("musicbrainz", recording)
	}
}

type listen struct {
	ListenedAt label `json:"listened_at"`
	Track      struct {
		Artist  string `json:"artist_name"`
		Title   string `json:"track_name"`
		Release string `json:"release_name"`
		Info    struct {
			Duration   label `json:"duration"`
			DurationMS label `json:"duration_ms"`
			Recording  label `json:"recording_mbid"`
		} `json:"additional_info"`
		Mapping struct {
			Recording label `json:"recording_mbid"`
		} `json:"mbid_mapping"`
	} `json:"track_metadata"`
}

func listenBrainz(_ *Source, b []byte) (*row, error) {
	in, err := object[listen](b)
	if err != nil {
		return nil, err
	}
	t := &in.Track
	r := song(t.Artist, t.Title)
	r.put("album", t.Release)
	r.musicBrainz(string(cmp.Or(t.Info.Recording, t.Mapping.Recording)))
	if r.duration, err = optional(string(t.Info.DurationMS), "ms"); err != nil {
		return nil, bad("duration_ms", "%s", err)
	}
	if r.duration == 0 {
		if r.duration, err = optional(string(t.Info.Duration), "s"); err != nil {
			return nil, bad("duration", "%s", err)
		}
	}
	r.start, err = seconds("listened_at", in.ListenedAt)
	return r, cmp.Or(err, r.named())
}

type malojaScrobble struct {
	Time  label `json:"time"`
	Track struct {
		Artists []string `json:"artists"`
		Title   string   `json:"title"`
		Length  label    `json:"length"`
	} `json:"track"`
}

func maloja(_ *Source, b []byte) (*row, error) {
	in, err := object[malojaScrobble](b)
	if err != nil {
		return nil, err
	}
	r := song(strings.Join(in.Track.Artists, ", "), in.Track.Title)
	if r.duration, err = optional(string(in.Track.Length), "s"); err != nil {
		return nil, bad("length", "%s", err)
	}
	r.start, err = seconds("time", in.Time)
	return r, cmp.Or(err, r.named())
}

type panoScrobble struct {
	TimeMS     label  `json:"timeMs"`
	Track      string `json:"track"`
	Artist     string `json:"artist"`
	Album      string `json:"album"`
	DurationMS label  `json:"durationMs"`
}

func pano(_ *Source, b []byte) (*row, error) {
	in, err := object[panoScrobble](b)
	if err != nil {
		return nil, err
	}
	r := song(in.Artist, in.Track)
	r.put("album", in.Album)
	if r.duration, err = optional(string(in.DurationMS), "ms"); err != nil {
		return nil, bad("durationMs", "%s", err)
	}
	if r.start, err = number(string(in.TimeMS), "ms"); err != nil {
		return nil, bad("timeMs", "%s", err)
	}
	return r, r.named()
}

func libreFM(_ *Source, c *cells) (r *row, err error) {
	r = song(c.get("artist"), c.get("track"))
	r.put("album", c.get("album"))
	r.start, err = number(c.get("time"), "s")
	return r, cmp.Or(err, r.named())
}

type podcastAction struct {
	Podcast   string `json:"podcast"`
	Episode   string `json:"episode"`
	Action    string `json:"action"`
	Timestamp string `json:"timestamp"`
	Device    string `json:"device"`
	Position  label  `json:"position"`
	Started   label  `json:"started"`
	Total     label  `json:"total"`
}

func gPodder(s *Source, b []byte) (*row, error) {
	in, err := object[podcastAction](b)
	switch {
	case err != nil:
		return nil, err
	case !strings.EqualFold(in.Action, "play"):
		return nil, notViewing("no play but: " + shown(in.Action))
	case in.Episode == "":
		return nil, bad("episode", "missing")
	}
	r := &row{kind: audio, object: in.Episode, device: in.Device}
	r.put("series", in.Podcast)
	if r.end, err = utc(in.Timestamp); err != nil {
		return nil, bad("timestamp", "%s", err)
	}
	for _, f := range []struct {
		text label
		ms   *int64
		name string
	}{{in.Position, &r.position, "position"}, {in.Total, &r.duration, "total"}} {
		if f.text == "-1" {
			continue
		}
		if *f.ms, err = optional(string(f.text), "s"); err != nil {
			return nil, bad(f.name, "%s", err)
		}
	}
	r.placed = in.Position != "" && in.Position != "-1"
	return r, nil
}

// utc parses a time with an offset, or else of UTC.
func utc(text string) (int64, error) { return iso(text, time.UTC) }

// scrobblerLog reads the log of a portable player: artist, album, title, number, seconds, rating, time and
// recording. Its times are UTC, or of the player's clock.
func (s *Source) scrobblerLog(in *text) error {
	s.recognised(scrobblerLog)
	l := &lines{in: in}
	zone := s.options.Zone
	for {
		b, err := l.next()
		i := Item{Place: Place{File: in.name, Line: l.line}}
		if err != nil && !errors.Is(err, errLong) {
			return s.ended(l, err)
		}
		line := string(b)
		switch {
		case err != nil:
			err = s.took(i, scrobblerLog, nil, err)
		case line == "#TZ/UTC":
			zone = nil
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case in.fault(b) != "":
			err = s.took(i, scrobblerLog, nil, bad("", "%s", in.fault(b)))
		default:
			r, bad := scrobble(strings.Split(line, "\t"), zone)
			err = s.took(i, scrobblerLog, r, bad)
		}
		if err != nil {
			return err
		}
	}
}

func scrobble(f []string, zone *time.Location) (*row, error) {
	if len(f) < 7 || len(f) > 8 {
		return nil, bad("", "%d columns, want 7 or 8", len(f))
	}
	switch f[5] {
	case "L":
	case "S":
		return nil, notViewing("skipped")
	default:
		return nil, bad("rating", "%s, want L or S", shown(f[5]))
	}
	r := song(f[0], f[2])
	r.put("album", f[1])
	if len(f) == 8 {
		r.musicBrainz(strings.TrimSpace(f[7]))
	}
	var err error
	if r.duration, err = optional(f[4], "s"); err != nil {
		return nil, bad("length", "%s", err)
	}
	at, err := number(f[6], "s")
	if err != nil {
		return nil, bad("time", "%s", err)
	}
	r.start, err = wall(time.UnixMilli(at).UTC(), zone)
	return r, cmp.Or(err, r.named())
}
