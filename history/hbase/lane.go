package hbase

import (
	"strconv"
	"sync"
	"time"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/internal/gate"
)

// impatience is how long a call must have waited before it counts against the server.
const impatience = time.Second

// lane is the way to one region server. One that does not answer holds up no more than
// what is its own. A batch must not mix servers: the client waits for all of them, and
// sends nothing to any while it looks for one that is gone.
type lane struct {
	name  string
	gate  *gate.Gate
	slots chan struct{} // of all calls
	puts  chan struct{} // of batches of cells
}

// lanes finds the lane of a row: that of the server which had the rows with the same two
// digits the last time. Until one is known, rows with the same first digit share a lane.
// What is found may be out of date, or two servers share the digits: then a batch goes to
// several servers, and all is well as long as they answer.
type lanes struct {
	config Config

	mu      sync.Mutex
	servers [maxRegions]string // their addresses, by the digits
	lanes   map[string]*lane
}

func newLanes(c Config) *lanes { return &lanes{config: c, lanes: map[string]*lane{}} }

// of returns the lane of a row.
func (l *lanes) of(row []byte) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.servers[digits(row)]
	if name == "" {
		name = "rows " + string(row[:1])
	}
	if l.lanes[name] == nil {
		l.lanes[name] = &lane{
			name: name, gate: gate.New("hbase "+name, l.config.Logger, min(impatience, l.config.Deadline)),
			slots: make(chan struct{}, inFlight), puts: make(chan struct{}, l.config.Puts),
		}
	}
	return l.lanes[name]
}

// learn notes which servers the calls went to.
func (l *lanes) learn(calls []hrpc.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		region := c.Region()
		if region == nil {
			continue // no server was found
		}
		if server := region.Client(); server != nil {
			l.servers[digits(c.Key())] = server.Addr()
		}
	}
}

// digits returns the number that begins every row of a user, see [history.RowKey].
func digits(row []byte) uint8 {
	n, _ := strconv.ParseUint(string(row[:2]), 16, 8)
	return uint8(n)
}
