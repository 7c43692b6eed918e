package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The sample clip is sound of 8 bits, low enough that an hour is 14 MB.
const (
	sampleRate = 4000
	maxSeconds = 6 * 60 * 60
	headerSize = 44
	barSeconds = 12 // until it repeats
)

// clip answers with a sound of ?seconds= (600 by default), made on the way: there is
// something to play for an object of any length.
func clip(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil {
		seconds = 600
	}
	seconds = max(1, min(seconds, maxSeconds))
	size := int64(seconds) * sampleRate
	w.Header().Set("Content-Type", "audio/wav")
	w.Header().Set("ETag", fmt.Sprintf(`W/"clip-%d"`, seconds))
	head := header(uint32(size))
	sound := io.NewSectionReader(tape{head: head, bar: bar()}, 0, headerSize+size)
	http.ServeContent(w, r, "", time.Time{}, sound)
}

// header is that of a RIFF file with so many bytes of sound in one channel.
func header(size uint32) []byte {
	var b bytes.Buffer
	for _, field := range []any{
		[]byte("RIFF"), size + headerSize - 8, []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1),
		uint32(sampleRate), uint32(sampleRate), uint16(1), uint16(8), []byte("data"), size,
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // a buffer takes everything
	}
	return b.Bytes()
}

// tape is the header and then the bar again and again. It implements [io.ReaderAt].
type tape struct{ head, bar []byte }

// ReadAt fills p.
func (t tape) ReadAt(p []byte, off int64) (n int, err error) {
	if off < headerSize {
		n = copy(p, t.head[off:])
	}
	for n < len(p) {
		at := (off + int64(n) - headerSize) % int64(len(t.bar))
		n += copy(p[n:], t.bar[at:])
	}
	return n, nil
}

// bar is four slow chords.
var bar = sync.OnceValue(func() []byte {
	chords := [4][3]float64{{220, 277.18, 329.63}, {185, 220, 277.18}, {146.83, 220, 293.66}, {164.81, 246.94, 329.63}}
	samples := make([]byte, barSeconds*sampleRate)
	length := len(samples) / len(chords)
	for i := range samples {
		at := float64(i%length) / float64(length)
		loud := 12 * math.Sin(math.Pi*at) // no clicks between them
		var sum float64
		for _, tone := range chords[i/length] {
			sum += math.Sin(2 * math.Pi * tone * float64(i) / sampleRate)
		}
		samples[i] = byte(128 + loud*sum)
	}
	return samples
})
