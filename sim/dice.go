package sim

// Every decision is drawn from the seed, its stream, and its number in that stream. Without some of its decisions
// a run is otherwise the same: this lets a failure shrink.

// stream is the subject of a decision.
type stream uint8

const (
	streamPick  stream = iota // Which exchange goes on, if not the oldest.
	streamAct                 // A client acts.
	streamFault               // An exchange goes wrong.
	streamEvent               // A process, a store or a clock changes.
	streamTime                // Time passes.
	streamGhost               // An abandoned exchange lands.
	streamWire                // A call to a service goes wrong.
	streamFate                // An exchange lands after its process died.
	streamNanos
	streamEdge
	streamOther
	streamSeed     // The seed's traits.
	streamSequence // An action of a sequence.
	streamCompact  // Segments change.
	streams
)

type decision struct {
	stream stream
	n      uint64
}

type source struct {
	seed  uint64
	count [streams]uint64
	only  map[decision]bool // allowed decisions; nil for all
	taken []decision
}

func (s *source) draw(st stream) uint64 {
	n := s.count[st]
	s.count[st]++
	return mix(s.seed, st, n)
}

func (s *source) below(st stream, n int) int { return int(s.draw(st) % uint64(n)) } //nolint:gosec // both are small

// chance draws an event with a probability in ten thousandths. It returns dice for the details.
func (s *source) chance(st stream, often int) (*dice, bool) {
	d := decision{st, s.count[st]}
	x := s.draw(st)
	if x%10_000 >= uint64(often) || s.only != nil && !s.only[d] { //nolint:gosec // positive
		return nil, false
	}
	s.taken = append(s.taken, d)
	return &dice{x}, true
}

// dice are the random numbers of one decision.
type dice struct{ state uint64 }

func (d *dice) Uint64() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return scramble(d.state)
}

func (d *dice) n(n int) int { return int(d.Uint64() % uint64(n)) } //nolint:gosec // both are small

func (d *dice) one(n int) bool { return d.n(n) == 0 }

func mix(seed uint64, st stream, n uint64) uint64 {
	return scramble(scramble(scramble(seed+0x9e3779b97f4a7c15)+uint64(st)) + n)
}

// scramble is the last step of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
