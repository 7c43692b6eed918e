package segment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
)

const (
	// maxBlock bounds a decompressed block. One record beyond ChunkSize fits easily.
	maxBlock = 1 << 20
	// minBlock is the least size of a compressed block.
	minBlock = 512
)

// Encoded is a chunk to store, with its metadata. The caller sets the name.
type Encoded struct {
	Info
	Data []byte
}

// Encode divides one user's records into chunks. The records must be in the order of [history.NewestFirst], one
// per object. It fails with [history.ErrInvalid] for another order or an invalid record.
func Encode(items []history.Item) ([]Encoded, error) {
	for i, it := range items {
		if err := valid(it.Object, it.Record); err != nil {
			return nil, fmt.Errorf("record of a segment, %s: %w", it.Object, err)
		}
		if i > 0 && history.NewestFirst(items[i-1], it) >= 0 {
			return nil, fmt.Errorf("record of a segment, %s: %w: want the newest first", it.Object, history.ErrInvalid)
		}
	}
	var chunks []Encoded
	for len(items) > 0 {
		c := recordCoder()
		c.time = items[0].Record.Version.Time()
		n := c.records(items)
		info := rangeOf(items[:n])
		info.Full = c.full(n)
		chunks = append(chunks, c.finish(Records, info))
		items = items[n:]
	}
	return chunks, nil
}

// records encodes as many records as fit into a chunk and returns their number.
func (c *coder) records(items []history.Item) (n int) {
	for n < len(items) && !c.full(n) {
		o, r := items[n].Object, *items[n].Record // records are shared
		c.head(&o, &r)
		c.text(0, &o.ID)
		c.body(&r)
		n++
	}
	return n
}

// full reports whether a chunk of n records is full.
func (c *coder) full(n int) bool { return n >= MaxRecords || c.bits >= 8*ChunkSize }

func rangeOf(items []history.Item) Info {
	first, last := items[0].Record.Version, items[len(items)-1].Record.Version
	i := Info{Count: len(items), Newest: first, Oldest: last, Filter: bloom.New(len(items))}
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
func (c *coder) finish(kind Kind, info Info) Encoded {
	var symbols, texts []byte
	var packed bitWriter
	for i := range c.columns {
		symbols = c.columns[i].appendTo(symbols, &packed)
	}
	texts = append(texts, byte(len(c.texts)))
	for i := range c.texts {
		texts = binary.AppendUvarint(texts, uint64(len(c.texts[i].rest)))
	}
	for i := range c.texts {
		texts = append(texts, c.texts[i].rest...)
	}
	b := []byte{format, byte(kind)}
	b = binary.AppendUvarint(b, uint64(info.Count)) //nolint:gosec // never negative
	b = binary.AppendUvarint(b, zigzag(info.Newest.Time()))
	b = append(appendBlock(appendBlock(b, symbols), texts), packed.bytes...)
	info.Kind, info.Sum = kind, xxhash.Sum64(b)
	b = seal(b)
	info.Bytes = len(b)
	return Encoded{Info: info, Data: b}
}

// Chunk is a chunk with a valid checksum. It is safe for concurrent use.
type Chunk struct {
	kind    Kind
	count   int
	time    int64
	symbols []byte
	texts   []byte
	packed  []byte

	// The index, built by its first user.
	once     sync.Once
	restarts []restart
	objects  []uint64 // by hash: upper bits of the hash, and the place
	err      error
}

// Open parses a chunk, which refers to b. It fails with [ErrCorrupt] or [ErrNewer].
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
	r := &reader{rest: b}
	kind, count := r.bytes(1), r.uvarint()
	c := &Chunk{time: r.varint(), symbols: r.block(), texts: r.block(), packed: r.rest}
	switch {
	case r.err != nil:
		return nil, r.err
	case kind[0] < byte(Records) || kind[0] > byte(Summaries):
		return nil, fmt.Errorf("%w: a chunk of kind %d", ErrCorrupt, kind[0])
	case count == 0 || count > MaxRecords:
		return nil, fmt.Errorf("%w: %d records", ErrCorrupt, count)
	}
	c.kind, c.count = Kind(kind[0]), int(count)
	return c, nil
}

// Kind returns the content of the chunk.
func (c *Chunk) Kind() Kind { return c.kind }

// Len returns the number of records.
func (c *Chunk) Len() int { return c.count }

// Wanted selects a record by its place in the chunk, its version and its type.
type Wanted func(i int, v history.Version, typ uint32) bool

// Items yields the wanted records, newest first; nil selects all. Others are not allocated. It ends after an
// error, which wraps [ErrCorrupt].
func (c *Chunk) Items(wanted Wanted) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) {
		d := recordCoder()
		if err := c.begin(d, Records); err != nil {
			yield(history.Item{}, err)
			return
		}
		c.items(d, 0, wanted, yield)
	}
}

// ItemsFrom is Items from version v back. The first call builds an index; later ones start near v.
func (c *Chunk) ItemsFrom(v history.Version, wanted Wanted) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) {
		if err := c.index(); err != nil {
			yield(history.Item{}, err)
			return
		}
		n, _ := slices.BinarySearchFunc(c.restarts, v, func(s restart, v history.Version) int {
			if s.before > v {
				return -1
			}
			return 1
		})
		n = max(n-1, 0)
		c.items(c.restarts[n].coder.clone(), n*restartEvery, func(i int, at history.Version, typ uint32) bool {
			return at <= v && (wanted == nil || wanted(i, at, typ))
		}, yield)
	}
}

// items continues with the record at a place.
func (c *Chunk) items(d *coder, place int, wanted Wanted, yield func(history.Item, error) bool) {
	var spare history.Record
	for i := place; i < c.count; i++ {
		it, err := d.item(i, wanted, &spare)
		if err != nil {
			yield(history.Item{}, fmt.Errorf("chunk: record %d: %w", i, err))
			return
		}
		if it.Record != nil && !yield(it, nil) {
			return
		}
	}
}

// Places returns the possible places of the objects' records, ascending. An object's record, if any, is at one
// of them. It fails with [ErrCorrupt] or [ErrNewer].
func (c *Chunk) Places(objects iter.Seq[history.Object]) (places []int, err error) {
	if err := c.index(); err != nil {
		return nil, err
	}
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

// At calls use with the records at ascending places. It fails with [ErrCorrupt] or [ErrNewer].
func (c *Chunk) At(places []int, use func(place int, it history.Item)) error {
	if err := c.index(); err != nil {
		return err
	}
	for len(places) > 0 {
		n, end := places[0]/restartEvery, 1
		for end < len(places) && places[end]/restartEvery == n {
			end++
		}
		if err := c.between(n, places[:end], use); err != nil {
			return err
		}
		places = places[end:]
	}
	return nil
}

// between reads records between restart n and the next.
func (c *Chunk) between(n int, places []int, use func(place int, it history.Item)) (err error) {
	wanted := func(i int, _ history.Version, _ uint32) bool { return i == places[0] }
	c.items(c.restarts[n].coder.clone(), n*restartEvery, wanted, func(it history.Item, failed error) bool {
		if err = failed; err != nil {
			return false
		}
		use(places[0], it)
		places = places[1:]
		return len(places) > 0
	})
	return err
}

// restart is a place where reading can start: a decoder at that place, and the version of the record before.
type restart struct {
	before history.Version
	coder  *coder
}

const (
	restartEvery = 64                      // records
	placeBits    = 1<<16 - 1               // of a place, below the bits of an object's hash
	restartSize  = recordColumns*64 + 1024 // approximate bytes of memory
)

// index builds the index once.
func (c *Chunk) index() error {
	c.once.Do(func() { c.err = c.makeIndex() })
	return c.err
}

func (c *Chunk) makeIndex() error {
	d, spare := recordCoder(), history.Record{Version: history.MaxVersion}
	if err := c.begin(d, Records); err != nil {
		return err
	}
	var o history.Object
	text := make([]byte, 0, history.MaxID+11)
	d.skips = true
	for i := range c.count {
		if i%restartEvery == 0 {
			c.restarts = append(c.restarts, restart{spare.Version, d.clone()})
		}
		d.head(&o, &spare)
		text = d.texts[0].decode(d).appendTo(text[:0])
		text = strconv.AppendUint(append(text, '_'), uint64(o.Type), 10)
		if d.body(&spare); d.err != nil {
			return fmt.Errorf("chunk: record %d: %w", i, d.err)
		}
		c.objects = append(c.objects, xxhash.Sum64(text)&^placeBits|uint64(i)) //nolint:gosec // a place
	}
	slices.Sort(c.objects)
	for i := range c.restarts {
		for j := range d.texts {
			t := &c.restarts[i].coder.texts[j]
			t.all = slices.Clip(d.texts[j].seen)
			t.seen = t.all[:len(t.seen)]
		}
	}
	return nil
}

// item decodes the next record. It decodes an unwanted one into spare and returns no record.
func (c *coder) item(i int, wanted Wanted, spare *history.Record) (it history.Item, err error) {
	if c.fresh == nil {
		c.fresh = new(history.Record)
	}
	r := c.fresh
	c.head(&it.Object, r)
	c.skips = wanted != nil && !wanted(i, r.Version, it.Object.Type)
	c.text(0, &it.Object.ID)
	if c.skips {
		spare.Version = r.Version
		c.body(spare)
		return history.Item{}, c.err
	}
	c.body(r)
	if c.err != nil {
		return history.Item{}, c.err
	}
	if err := valid(it.Object, r); err != nil {
		return history.Item{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	it.Record, c.fresh = r, nil
	return it, nil
}

// begin prepares a coder to decode the chunk.
func (c *Chunk) begin(d *coder, kind Kind) error {
	if c.kind != kind {
		return fmt.Errorf("chunk: %w: of kind %d, want %d", ErrCorrupt, c.kind, kind)
	}
	d.decodes, d.packed, d.time = true, c.packed, c.time
	r, at := &reader{rest: c.symbols}, 0
	for i := 0; i < len(d.columns) && len(r.rest) > 0; i++ { // older chunks have fewer
		at = d.columns[i].parse(r, at)
	}
	if at > 8*len(c.packed) {
		r.fail("%d bits in %d bytes", at, len(c.packed))
	}
	t := &reader{rest: c.texts}
	t.texts(d.texts)
	switch err := cmp.Or(r.err, t.err); {
	case err != nil:
		return fmt.Errorf("chunk: %w", err)
	case len(r.rest) > 0: // rewriting the records would lose them
		return fmt.Errorf("chunk: columns that are not known: %w", ErrNewer)
	}
	return nil
}

// texts parses the texts of all columns; older chunks have fewer.
func (r *reader) texts(all []texts) {
	n := r.uvarint()
	if n > uint64(len(all)) {
		if r.err == nil {
			r.err = fmt.Errorf("columns that are not known: %w", ErrNewer)
		}
		return
	}
	lengths := make([]uint64, n)
	for i := range lengths {
		lengths[i] = r.uvarint()
	}
	for i, length := range lengths {
		all[i].rest = r.bytes(length)
	}
}

// appendBlock appends a block with its length, compressed if that is shorter.
func appendBlock(dst, b []byte) []byte {
	if len(b) >= minBlock {
		if z := compressor().EncodeAll(b, nil); len(z) < len(b) {
			dst = binary.AppendUvarint(dst, uint64(len(z))<<1|1)
			return append(dst, z...)
		}
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))<<1), b...)
}

func (r *reader) block() []byte {
	head := r.uvarint()
	b := r.bytes(head >> 1)
	if head&1 == 0 || r.err != nil {
		return b
	}
	plain, err := decompressor().DecodeAll(b, nil)
	if err != nil {
		r.fail("decompress: %v", err)
	}
	return plain
}

// Both are safe for concurrent use, and allocated at first use.
var (
	compressor = sync.OnceValue(func() *zstd.Encoder {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(maxBlock), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // invalid options
		}
		return w
	})
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		r, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return r
	})
)

// Size returns the approximate memory of the chunk and its index, in bytes.
func (c *Chunk) Size() int {
	return len(c.symbols) + len(c.texts) + len(c.packed) + 48*c.count + (c.count/restartEvery+1)*restartSize // a hash and a text per record
}

// Open parses the chunk and checks that the metadata lists it. It fails with [ErrCorrupt] or [ErrNewer].
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
