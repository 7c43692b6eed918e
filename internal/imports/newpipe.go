package imports

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"
)

// maxStreams bounds the streams of NewPipe that are in memory while the plays are read.
const maxStreams = 500_000

// stream is a video of NewPipe.
type stream struct {
	address, title, channel string
	duration                int64 // seconds
	progress                int64 // milliseconds
	placed                  bool
}

// sqlite reads the database of NewPipe from a temporary copy.
func (s *Source) sqlite(name string, r *bufio.Reader) error {
	s.files = append(s.files, File{Name: name})
	f, err := s.spool(r)
	if err != nil {
		return s.failed(name, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // nothing can be done
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s.failed(name, err)
	}
	d, err := openDatabase(f, info.Size())
	if err != nil {
		return s.broken(name, 0, err.Error())
	}
	if _, ok := d.tables["stream_history"]; !ok {
		s.problem = errors.New("an SQLite database, and not NewPipe's. " + wantForms())
		return nil
	}
	s.recognised(newPipe)
	return s.newPipe(name, d)
}

func (s *Source) newPipe(name string, d *database) error {
	streams, err := d.streams()
	if err != nil {
		return s.broken(name, 0, err.Error())
	}
	line := int64(0)
	err = d.each("stream_history", func(get func(string) any) error {
		line++
		r, err := newPipeRow(streams, get)
		return s.took(Item{Place: Place{File: name, Line: line}}, newPipe, r, err)
	})
	if errors.Is(err, errDatabase) {
		return s.broken(name, line+1, "the rest of the file was not read: "+err.Error())
	}
	return err
}

// streams reads the videos by id, with the positions in them.
func (d *database) streams() (map[int64]*stream, error) {
	all := make(map[int64]*stream)
	err := d.each("streams", func(get func(string) any) error {
		id, _ := get("uid").(int64)
		one := &stream{}
		one.address, _ = get("url").(string)
		one.title, _ = get("title").(string)
		one.channel, _ = get("uploader").(string)
		one.duration, _ = get("duration").(int64)
		if all[id] = one; len(all) > maxStreams {
			return fmt.Errorf("more than %d streams", maxStreams)
		}
		return nil
	})
	if _, ok := d.tables["stream_state"]; err != nil || !ok {
		return all, err
	}
	return all, d.each("stream_state", func(get func(string) any) error {
		id, _ := get("stream_id").(int64)
		if one := all[id]; one != nil {
			if one.progress, one.placed = get("progress_time").(int64); !one.placed {
				one.progress, one.placed = get("progress_millis").(int64)
			}
		}
		return nil
	})
}

// newPipeRow reads a play. Earlier repeats have no times and do not count.
func newPipeRow(streams map[int64]*stream, get func(string) any) (*row, error) {
	id, _ := get("stream_id").(int64)
	at, ok := get("access_date").(int64)
	one := streams[id]
	switch {
	case !ok:
		return nil, bad("access_date", "missing")
	case one == nil:
		return nil, bad("stream_id", "no stream %d", id)
	case !utf8.ValidString(one.address + one.title):
		return nil, bad("stream_id", "invalid UTF-8")
	}
	r := &row{kind: video, object: one.address, end: at, duration: max(one.duration, 0) * 1000, position: one.progress, placed: one.placed}
	if v := videoID(one.address); v != "" {
		r.object = "youtube:" + v
	}
	if !one.placed {
		r.state = finished
	}
	r.put("title", one.title)
	r.put("channel", one.channel)
	return r, nil
}
