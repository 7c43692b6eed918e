package imports

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Names of forms that code asks for.
const (
	netflixShort = "Netflix viewing history"
	youTubeHTML  = "YouTube Takeout (HTML)"
	scrobblerLog = ".scrobbler.log"
	jellyfin     = "Jellyfin Playback Reporting"
	newPipe      = "NewPipe"
)

// Object ids are "authority:rest", so a film has one id in all files that name its authority. Examples:
//
//	tmdb:movie/603, tmdb:tv/1399/1/2 (season, episode), imdb:tt0133093, tvdb:tv/9, trakt:movie/9
//	youtube:dQw4w9WgXcQ, netflix:Title, plex:movie/5d77, jellyfin:0123
//	spotify:track:0123, musicbrainz:8f3471b5-…, song:artist/title, the URL of a podcast's episode

type traktIDs struct {
	Trakt label `json:"trakt"`
	IMDb  label `json:"imdb"`
	TMDB  label `json:"tmdb"`
	TVDB  label `json:"tvdb"`
}

func (t *traktIDs) put(r *row) {
	r.put("trakt", string(t.Trakt))
	r.put("imdb", string(t.IMDb))
	r.put("tmdb", string(t.TMDB))
	r.put("tvdb", string(t.TVDB))
}

// first returns an id of the best authority.
func (t *traktIDs) first(kind string) string {
	switch {
	case t.TMDB != "":
		return "tmdb:" + kind + "/" + string(t.TMDB)
	case t.IMDb != "":
		return "imdb:" + string(t.IMDb)
	case t.TVDB != "":
		return "tvdb:" + kind + "/" + string(t.TVDB)
	case t.Trakt != "":
		return "trakt:" + kind + "/" + string(t.Trakt)
	}
	return ""
}

type traktWatched struct {
	WatchedAt string `json:"watched_at"`
	Type      string `json:"type"`
	Movie     struct {
		Title string   `json:"title"`
		IDs   traktIDs `json:"ids"`
	} `json:"movie"`
	Show struct {
		Title string   `json:"title"`
		IDs   traktIDs `json:"ids"`
	} `json:"show"`
	Episode struct {
		Season *int64   `json:"season"`
		Number *int64   `json:"number"`
		Title  string   `json:"title"`
		IDs    traktIDs `json:"ids"`
	} `json:"episode"`
}

func trakt(_ *Source, b []byte) (*row, error) {
	in, err := object[traktWatched](b)
	if err != nil {
		return nil, err
	}
	r := &row{kind: video, state: finished}
	switch in.Type {
	case "movie":
		r.object = in.Movie.IDs.first("movie")
		r.put("title", in.Movie.Title)
		in.Movie.IDs.put(r)
	case "episode":
		r.kind = episode
		e, show := &in.Episode, in.Show.IDs.first("tv")
		if e.Season == nil || e.Number == nil {
			return nil, bad("episode", "no season and number")
		}
		if show != "" {
			r.object = part(show, *e.Season, *e.Number)
		}
		r.series(in.Show.Title, *e.Season, *e.Number)
		r.put("title", e.Title)
		e.IDs.put(r)
	default:
		return nil, notViewing("neither a film nor an episode: " + shown(in.Type))
	}
	if r.object == "" {
		return nil, bad("ids", "none of trakt, tmdb, imdb and tvdb")
	}
	r.end, err = when("watched_at", in.WatchedAt)
	return r, err
}

// part returns the id of an episode of a show.
func part(show string, season, number int64) string {
	return show + "/" + strconv.FormatInt(season, 10) + "/" + strconv.FormatInt(number, 10)
}

// series sets the metadata by which the next part is found.
func (r *row) series(title string, season, number int64) {
	r.put("series", title)
	r.put("season", strconv.FormatInt(season, 10))
	r.put("episode", strconv.FormatInt(number, 10))
}

func when(field, text string) (int64, error) {
	ms, err := rfc3339(text)
	if err != nil {
		return 0, bad(field, "%s", err)
	}
	return ms, nil
}

type youTubeWatched struct {
	Header    string `json:"header"`
	Title     string `json:"title"`
	TitleURL  string `json:"titleUrl"`
	Subtitles []struct {
		Name string `json:"name"`
	} `json:"subtitles"`
	Time    string `json:"time"`
	Details []struct {
		Name string `json:"name"`
	} `json:"details"`
}

func youTube(_ *Source, b []byte) (*row, error) {
	in, err := object[youTubeWatched](b)
	if err != nil {
		return nil, err
	}
	for _, d := range in.Details {
		if strings.Contains(d.Name, "Google Ads") {
			return nil, notViewing("an advertisement")
		}
	}
	r, err := youTubeRow(in.TitleURL, in.Header)
	if err != nil {
		return nil, err
	}
	r.put("title", watched(in.Title))
	if len(in.Subtitles) > 0 {
		r.put("channel", in.Subtitles[0].Name)
	}
	r.end, err = when("time", in.Time)
	return r, err
}

// youTubeRow returns the row of a video's address.
func youTubeRow(address, header string) (*row, error) {
	if address == "" {
		return nil, notViewing("a video that was removed")
	}
	v := videoID(address)
	if v == "" {
		return nil, notViewing("no video: " + shown(address))
	}
	r := &row{kind: video, object: "youtube:" + v}
	if strings.HasPrefix(header, "YouTube Music") || strings.Contains(address, "//music.youtube.com/") {
		r.kind = audio
	}
	return r, nil
}

// videoID returns the id in the address of a YouTube video, "" without one.
func videoID(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	switch host := strings.TrimPrefix(strings.TrimPrefix(u.Host, "www."), "m."); {
	case host == "youtu.be":
		return strings.Trim(u.Path, "/")
	case host != "youtube.com" && host != "music.youtube.com":
		return ""
	case strings.HasPrefix(u.Path, "/shorts/"):
		return strings.TrimPrefix(u.Path, "/shorts/")
	case u.Path == "/watch":
		return u.Query().Get("v")
	}
	return ""
}

// watched removes the word for "watched", which Takeout puts around titles.
func watched(title string) string {
	for _, before := range []string{"Watched ", "Vous avez regardé ", "Has visto ", "Hai guardato ", "Você assistiu a ", "Visionado: "} {
		if rest, ok := strings.CutPrefix(title, before); ok {
			return rest
		}
	}
	for _, after := range []string{" angesehen", " gekeken", " を視聴しました"} {
		if rest, ok := strings.CutSuffix(title, after); ok {
			return rest
		}
	}
	return title
}

type freeTubeWatched struct {
	VideoID       string `json:"videoId"`
	Title         string `json:"title"`
	Author        string `json:"author"`
	LengthSeconds label  `json:"lengthSeconds"`
	WatchProgress label  `json:"watchProgress"`
	TimeWatched   label  `json:"timeWatched"`
	IsLive        bool   `json:"isLive"`
	Deleted       bool   `json:"$$deleted"`
	// Index is a line of the database about itself.
	Index *struct{} `json:"$$indexCreated"`
}

func freeTube(_ *Source, b []byte) (*row, error) {
	in, err := object[freeTubeWatched](b)
	switch {
	case err != nil:
		return nil, err
	case in.Deleted:
		return nil, notViewing("deleted")
	case in.Index != nil:
		return nil, notViewing("an index of the database")
	case in.VideoID == "":
		return nil, bad("videoId", "missing")
	}
	r := &row{kind: video, object: "youtube:" + in.VideoID}
	r.put("title", in.Title)
	r.put("channel", in.Author)
	if r.end, err = number(string(in.TimeWatched), "ms"); err != nil {
		return nil, bad("timeWatched", "%s", err)
	}
	if in.IsLive {
		return r, nil
	}
	if r.duration, err = optional(string(in.LengthSeconds), "s"); err != nil {
		return nil, bad("lengthSeconds", "%s", err)
	}
	if r.position, err = optional(string(in.WatchProgress), "s"); err != nil {
		return nil, bad("watchProgress", "%s", err)
	}
	r.placed = r.duration > 0 || r.position > 0
	return r, nil
}

// optional parses a number that may be absent.
func optional(text, unit string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return number(text, unit)
}

// seconds parses the whole seconds of a Unix time.
func seconds(field string, text label) (int64, error) {
	if text == "" {
		return 0, bad(field, "missing")
	}
	ms, err := number(string(text), "s")
	if err != nil {
		return 0, bad(field, "%s", err)
	}
	return ms, nil
}

type tautulliPlayed struct {
	User            string `json:"user"`
	Started         label  `json:"started"`
	Stopped         label  `json:"stopped"`
	PausedCounter   label  `json:"paused_counter"`
	MediaType       string `json:"media_type"`
	RatingKey       label  `json:"rating_key"`
	GUID            string `json:"guid"`
	Title           string `json:"title"`
	GrandparentName string `json:"grandparent_title"`
	ParentIndex     label  `json:"parent_media_index"`
	Index           label  `json:"media_index"`
	WatchedStatus   label  `json:"watched_status"`
	Player          string `json:"player"`
}

func tautulliJSON(_ *Source, b []byte) (*row, error) {
	in, err := object[tautulliPlayed](b)
	if err != nil {
		return nil, err
	}
	return in.row()
}

// tautulliTable reads the same fields from a table. Address, agent and machine are not read.
func tautulliTable(_ *Source, c *cells) (*row, error) {
	in := tautulliPlayed{
		User: c.get("user"), MediaType: c.get("media_type"), GUID: c.get("guid"), Title: c.get("title"), GrandparentName: c.get("grandparent_title"),
		ParentIndex: label(c.get("parent_media_index")), Index: label(c.get("media_index")), Player: c.get("player"), PausedCounter: label(c.get("paused_counter")),
		RatingKey: label(c.get("rating_key")), Started: label(c.get("started")), Stopped: label(c.get("stopped")), WatchedStatus: label(c.get("watched_status")),
	}
	return in.row()
}

func (in *tautulliPlayed) row() (r *row, err error) {
	r = &row{user: in.User, device: in.Player, kind: kindOfMedia(in.MediaType), state: stopped}
	switch {
	case r.kind == "":
		return nil, notViewing("of another kind: " + shown(in.MediaType))
	case strings.HasPrefix(in.GUID, "plex://"):
		r.object = "plex:" + strings.TrimPrefix(in.GUID, "plex://")
	case in.RatingKey != "":
		r.object = "plex:" + string(in.RatingKey)
	default:
		return nil, bad("rating_key", "missing")
	}
	r.put("title", in.Title)
	if r.kind == episode {
		r.put("series", in.GrandparentName)
		r.put("season", string(in.ParentIndex))
		r.put("episode", string(in.Index))
	}
	if r.start, err = seconds("started", in.Started); err != nil {
		return nil, err
	}
	if r.end, err = seconds("stopped", in.Stopped); err != nil {
		return nil, err
	}
	paused, err := optional(string(in.PausedCounter), "s")
	if err != nil {
		return nil, bad("paused_counter", "%s", err)
	}
	r.played = max(r.end-r.start-paused, 0)
	if in.WatchedStatus == "1" || in.WatchedStatus == "1.0" {
		r.state = finished
	}
	return r, nil
}

func kindOfMedia(media string) string {
	switch strings.ToLower(media) {
	case "movie", "clip", "video", "musicvideo":
		return video
	case "episode":
		return episode
	case "track", "audio":
		return audio
	}
	return ""
}

func netflixLong(s *Source, c *cells) (r *row, err error) {
	if kind := c.get("Supplemental Video Type"); kind != "" {
		return nil, notViewing("not a title but a " + strings.ToLower(kind))
	}
	if strings.Contains(c.get("Attributes"), "Autoplayed: user action: None") {
		return nil, notViewing("played by itself")
	}
	r = netflixTitle(c.get("Title"))
	r.user, r.device, r.state = c.get("Profile Name"), c.get("Device Type"), stopped
	start, err := time.Parse(time.DateTime, c.get("Start Time"))
	if err != nil {
		return nil, bad("", "%s is not a time such as 2026-01-02 15:04:05", shown(c.get("Start Time")))
	}
	r.start = start.UnixMilli() // always UTC
	if r.played, err = hms(c.get("Duration")); err != nil {
		return nil, err
	}
	if bookmark := c.get("Bookmark"); strings.Contains(bookmark, ":") {
		if r.position, err = hms(bookmark); err != nil {
			return nil, err
		}
		r.placed = true
	}
	return r, c.missing("Title")
}

func netflixShortRow(s *Source, c *cells) (r *row, err error) {
	r = netflixTitle(c.get("Title"))
	if err := c.missing("Title"); err != nil {
		return nil, err
	}
	day, ok := date(c.get("Date"), c.dates, s.started.Year()+1)
	if !ok {
		return nil, bad("", "%s is not a date in the order %s", shown(c.get("Date")), c.dates)
	}
	r.end = midnight(day, s.options.Zone)
	return r, nil
}

// missing refuses an empty field.
func (c *cells) missing(name string) error {
	if c.get(name) == "" {
		return bad("", "missing")
	}
	return nil
}

// netflixOrder returns the order of the dates, of the options or as the first rows show it.
func (s *Source) netflixOrder(head []byte, t *table, c columns) (DateOrder, error) {
	if s.options.Dates != "" {
		return s.options.Dates, nil
	}
	var dates []string
	column, _ := c.index("Date")
	for _, line := range firstLines(head, 1<<20)[1:] {
		if fields := splitLine(line, string(t.delim)); len(fields) == t.width {
			dates = append(dates, fields[column])
		}
	}
	if len(dates) == 0 {
		return DayFirst, nil
	}
	return dateOrder(dates, s.started.Year()+1)
}

// netflixTitle divides "Show: Season 2: Title". Only the title tells one object from another.
func netflixTitle(title string) *row {
	r := &row{kind: video, object: "netflix:" + title}
	r.put("title", title)
	if parts := strings.SplitN(title, ": ", 3); len(parts) == 3 {
		r.kind = episode
		r.put("series", parts[0])
	}
	return r
}

func yamtrack(s *Source, c *cells) (r *row, err error) {
	r = &row{kind: video, state: finished}
	kind, source := c.get("media_type"), c.get("source")
	mediaID := c.get("media_id")
	if err := c.missing("media_id"); err != nil {
		return nil, err
	}
	r.object = source + ":" + kind + "/" + mediaID
	switch kind {
	case "movie", "anime":
	case "episode":
		r.kind = episode
		season, e := strconv.ParseInt(c.get("season_number"), 10, 32)
		if e != nil {
			return nil, bad("", "%s is not a number", shown(c.get("season_number")))
		}
		n, e := strconv.ParseInt(c.get("episode_number"), 10, 32)
		if e != nil {
			return nil, bad("", "%s is not a number", shown(c.get("episode_number")))
		}
		r.object = part(source+":tv/"+mediaID, season, n)
		r.series(c.get("title"), season, n)
	case "tv", "season":
		return nil, notViewing("the summary of a " + kind)
	default:
		return nil, notViewing("of another kind: " + shown(kind))
	}
	r.put("title", c.get("title"))
	r.put("image", c.get("image"))
	r.put(source, mediaID)
	if status := c.get("status"); kind != "episode" && status != "" && !strings.EqualFold(status, "completed") {
		return nil, notViewing("not completed: " + shown(status))
	}
	for _, name := range []string{"watch_date", "end_date"} {
		if text := c.get(name); text != "" {
			r.end, err = iso(text, s.options.Zone)
			return r, err
		}
	}
	return nil, notViewing("without a date")
}

func isJellyfin(line []byte) bool {
	f := splitLine(line, "\t")
	return len(f) == 9 && len(f[2]) >= 32 && kindOfMedia(f[3]) != "" && strings.Count(f[0], ":") == 2
}

// jellyfin reads the backup of the plugin, which has no header: time, user, item, type, name, method, client, device
// and seconds.
func (s *Source) jellyfin(t *table) error {
	t.delim, t.width = []byte("\t"), 9
	return s.rows(t, jellyfin, func() (*row, int, error) {
		f := func(i int) string { return strings.TrimSpace(string(t.fields[i])) }
		r := &row{kind: kindOfMedia(f(3)), user: f(1), object: "jellyfin:" + f(2), device: f(7), state: stopped}
		if r.kind == "" {
			return nil, 3, notViewing("of another kind: " + shown(f(3)))
		}
		r.put("title", f(4))
		start, err := time.Parse("2006-01-02 15:04:05.9999999", f(0))
		if err != nil {
			return nil, 0, bad("time", "%s is not a time such as 2026-01-02 15:04:05", shown(f(0)))
		}
		if r.start, err = wall(start, s.options.Zone); err != nil {
			return nil, 0, err
		}
		if r.played, err = number(f(8), "s"); err != nil {
			return nil, 8, err
		}
		return r, -1, nil
	})
}
