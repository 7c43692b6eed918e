package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Limits of a chunk.
const (
	// ChunkSize is the approximate size of a chunk's columns before compression, in bytes.
	ChunkSize = 96 << 10
	// MaxRecords bounds the records of a chunk, and thus the cost of finding one.
	MaxRecords = 4096

	maxColumns = 1 << 20 // bytes before compression. One record beyond ChunkSize fits easily.
)

// Encoded is a chunk to store, with its metadata. The caller sets the name.
type Encoded struct {
	Info
	Data []byte
}

// Encode divides one user's records into chunks. The records must be in the order of [history.NewestFirst], one
// per object. It fails with [history.ErrInvalid] for another order or an invalid record.
func Encode(items []history.Item) (chunks []Encoded, err error) {
	for i, it := range items {
		if err := valid(it.Object, it.Record); err != nil {
			return nil, fmt.Errorf("record of a segment, %s: %w", it.Object, err)
		}
		if i > 0 && history.NewestFirst(items[i-1], it) >= 0 {
			return nil, fmt.Errorf("record of a segment, %s: %w: want the newest first", it.Object, history.ErrInvalid)
		}
	}
	for len(items) > 0 {
		c := recordCoder()
		c.time = items[0].Record.Version.Time()
		n := c.records(items)
		info := rangeOf(items[:n])
		info.Full = c.full(n)
		chunk, err := c.finish(info)
		if err != nil {
			return nil, err
		}
		chunks, items = append(chunks, chunk), items[n:]
	}
	return chunks, nil
}

// records encodes as many records as fit into a chunk and returns their number.
func (c *coder) records(items []history.Item) (n int) {
	for n < len(items) && !c.full(n) {
		c.encode(items[n])
		n++
	}
	return n
}

// full reports whether a chunk of n records is full.
func (c *coder) full(n int) bool { return n >= MaxRecords || c.size >= ChunkSize }

func rangeOf(items []history.Item) Info {
	first, last := items[0].Record.Version, items[len(items)-1].Record.Version
	i := Info{Kind: Records, Count: len(items), Newest: first, Oldest: last, Filter: bloom.New(len(items))}
	counts := make(map[uint32]int)
	for _, it := range items {
		i.Filter.Add(hashOf(it.Object))
		i.CellTime = max(i.CellTime, it.Record.CellTime)
		counts[it.Object.Type]++
	}
	i.Types = countTypes(counts)
	return i
}

// finish returns the encoded chunk.
func (c *coder) finish(info Info) (Encoded, error) {
	m := c.message()
	m.Kind, m.Count, m.NewestMs = uint32(info.Kind), uint32(info.Count), info.Newest.Time() //nolint:gosec // never negative
	columns, err := proto.Marshal(m)
	if err != nil {
		return Encoded{}, fmt.Errorf("chunk: %w", err)
	}
	b := bytes.NewBuffer([]byte{format})
	if err := compress(b, columns); err != nil {
		return Encoded{}, fmt.Errorf("chunk: %w", err)
	}
	data := seal(b.Bytes())
	info.Bytes, info.Sum = len(data), binary.LittleEndian.Uint64(data[len(data)-sumSize:])
	return Encoded{Info: info, Data: data}, nil
}

// compress writes a message as one zstd frame. Each large field ends its block, so that it has a code of its own.
// Symbols of one column are alike, those of two columns are not.
func compress(dst *bytes.Buffer, message []byte) error {
	const block = 512 // bytes at least
	w := compressors.Get().(*zstd.Encoder)
	defer compressors.Put(w)
	w.Reset(dst)
	for from := 0; from < len(message); {
		end := from
		for end < len(message) && end-from < block {
			_, _, n := protowire.ConsumeField(message[end:])
			end += n
		}
		if _, err := w.Write(message[from:end]); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		from = end
	}
	return w.Close()
}

// Both are allocated at first use.
var (
	compressors = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxColumns), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // invalid options
		}
		return w
	}}
	decompressor = sync.OnceValue(func() *zstd.Decoder { // safe for concurrent use
		r, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxColumns), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return r
	})
)

// Chunk is a chunk with a valid checksum. It is safe for concurrent use.
type Chunk struct {
	kind  Kind
	count int
	coder *coder // at the first row

	// The index, built by its first user.
	once    sync.Once
	objects []uint64 // by hash: upper bits of the hash, and the place
}

// Open decompresses a chunk. It fails with [ErrCorrupt] or [ErrNewer].
func Open(b []byte) (*Chunk, error) {
	c, err := open(b)
	if err != nil {
		return nil, fmt.Errorf("chunk: %w", err)
	}
	return c, nil
}

func open(b []byte) (*Chunk, error) {
	b, err := unseal(b)
	if err != nil {
		return nil, err
	}
	var m historyv1.SegmentChunk
	if b, err = decompressor().DecodeAll(b, nil); err == nil {
		err = proto.Unmarshal(b, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c := &Chunk{kind: Kind(m.GetKind()), count: int(m.GetCount())} //nolint:gosec // looked at
	switch {
	case m.GetKind() == uint32(Records):
		c.coder = recordCoder()
	case m.GetKind() == uint32(Summaries):
		c.coder = summaryCoder()
	default:
		return nil, fmt.Errorf("%w: a chunk of kind %d", ErrCorrupt, m.GetKind())
	}
	if c.count == 0 || c.count > MaxRecords {
		return nil, fmt.Errorf("%w: %d records", ErrCorrupt, c.count)
	}
	return c, c.coder.parse(&m)
}

// Open decompresses the chunk and checks that the metadata lists it. It fails with [ErrCorrupt] or [ErrNewer].
func (i *Info) Open(b []byte) (*Chunk, error) {
	c, err := open(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("chunk %q: %w", i.Name, err)
	case len(b) != i.Bytes || binary.LittleEndian.Uint64(b[len(b)-sumSize:]) != i.Sum:
		return nil, fmt.Errorf("chunk %q: %w: it is another one than the metadata lists", i.Name, ErrCorrupt)
	case c.kind != i.Kind || c.count != i.Count:
		return nil, fmt.Errorf("chunk %q: %w: %d records of kind %d, the metadata lists %d of kind %d", i.Name, ErrCorrupt, c.count, c.kind, i.Count, i.Kind)
	}
	return c, nil
}

// Kind returns the content of the chunk.
func (c *Chunk) Kind() Kind { return c.kind }

// Len returns the number of records.
func (c *Chunk) Len() int { return c.count }

// Size returns the approximate memory of the chunk and its index, in bytes.
func (c *Chunk) Size() int {
	size := 8 * c.count
	for _, values := range c.coder.values {
		size += 8 * cap(values)
	}
	for _, text := range c.coder.texts {
		size += len(text)
	}
	return size
}

// at returns a decoder of the record at a place.
func (c *Chunk) at(place int) *coder {
	d := *c.coder
	d.row, d.last = place, make([]string, len(d.texts))
	return &d
}

// Wanted selects a record by its place in the chunk, its version and its type.
type Wanted func(i int, v history.Version, typ uint32) bool

// Items yields the wanted records, newest first; nil selects all. Others are not allocated. It ends after an
// error, which wraps [ErrCorrupt].
func (c *Chunk) Items(wanted Wanted) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) { c.items(0, wanted, yield) }
}

// ItemsFrom is Items from version v back.
func (c *Chunk) ItemsFrom(v history.Version, wanted Wanted) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) {
		d := c.at(0)
		first := sort.Search(c.count, func(i int) bool {
			_, r := d.selects(i)
			return r.Version <= v
		})
		c.items(first, wanted, yield)
	}
}

// items continues with the record at a place.
func (c *Chunk) items(place int, wanted Wanted, yield func(history.Item, error) bool) {
	if err := c.want(Records); err != nil {
		yield(history.Item{}, err)
		return
	}
	for d := c.at(place); d.row < c.count; d.row++ {
		if wanted != nil {
			if o, r := d.selects(d.row); !wanted(d.row, r.Version, o.Type) {
				continue
			}
		}
		it, err := d.decode()
		if err != nil {
			yield(history.Item{}, fmt.Errorf("chunk: record %d: %w", d.row, err))
			return
		}
		if !yield(it, nil) {
			return
		}
	}
}

// selects decodes the fields by which a record is selected.
func (c *coder) selects(row int) (o history.Object, r history.Record) {
	c.row = row
	c.head(&o, &r)
	return o, r
}

// want fails for a chunk of another kind.
func (c *Chunk) want(kind Kind) error {
	if c.kind != kind {
		return fmt.Errorf("chunk: %w: of kind %d, want %d", ErrCorrupt, c.kind, kind)
	}
	return nil
}

// Places returns the possible places of the objects' records, ascending. An object's record, if any, is at one
// of them. It fails with [ErrCorrupt].
func (c *Chunk) Places(objects iter.Seq[history.Object]) (places []int, err error) {
	if err := c.want(Records); err != nil {
		return nil, err
	}
	c.once.Do(c.index)
	for o := range objects {
		first := hashOf(o) &^ placeBits
		i, _ := slices.BinarySearch(c.objects, first)
		for ; i < len(c.objects) && c.objects[i]&^placeBits == first; i++ {
			places = append(places, int(c.objects[i]&placeBits)) //nolint:gosec // a chunk has few
		}
	}
	slices.Sort(places)
	return slices.Compact(places), nil
}

const placeBits = 1<<16 - 1 // of a place, below the bits of an object's hash

// index lists the objects.
func (c *Chunk) index() {
	d, text := c.at(0), make([]byte, 0, history.MaxID+11)
	for ; d.row < c.count; d.row++ {
		text = append(append(text[:0], d.bytes(textID)...), '_')
		text = strconv.AppendUint(text, d.get(colType), 10)
		c.objects = append(c.objects, xxhash.Sum64(text)&^placeBits|uint64(d.row)) //nolint:gosec // a place
	}
	slices.Sort(c.objects)
}

// At calls use with the records at places. It fails with [ErrCorrupt].
func (c *Chunk) At(places []int, use func(place int, it history.Item)) error {
	if err := c.want(Records); err != nil {
		return err
	}
	d := c.at(0)
	for _, d.row = range places {
		it, err := d.decode()
		if err != nil {
			return fmt.Errorf("chunk: record %d: %w", d.row, err)
		}
		use(d.row, it)
	}
	return nil
}
