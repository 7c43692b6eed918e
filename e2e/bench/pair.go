package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/playhead/playhead/history-job/replay"
)

// pairSize is how many heartbeats a turn of a pair has.
const pairSize = 300_000

// Pair measures the all-in-ones of two folders of built commands in turns on a load, long or trace,
// with so many bytes of metadata, and prints how much each figure of the second is of the first's:
// the median of the rounds, the lowest and the highest. Bin is the first folder. A change that costs
// some percent shows in no other way on a machine that has other work.
func Pair(ctx context.Context, out io.Writer, o Options, p Paired) error {
	l, err := p.load(o)
	if err != nil {
		return err
	}
	sides, turns := [...]string{o.Bin, p.Bin}, make(Turns)
	for round := range o.Rounds {
		for i := range sides {
			bin := sides[(i+round)%len(sides)]
			f, err := (&Embedded{Bin: bin, Dir: o.Dir}).Measure(ctx, l, GRPC, small)
			if err != nil {
				return fmt.Errorf("pair: %w", err)
			}
			turns[bin] = append(turns[bin], f)
			o.Log.Info("turn", "round", round+1, "bin", bin, "rate", int(f["rate"]), "acked_us", f["acked"], "archived_us", f["archived"])
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tA\tB\tB/A\tFROM\tTO")
	for _, name := range []string{"acked", "acked.all-in-one", "archived", "archived.all-in-one", "rate", "memory"} {
		a, _ := turns.Of(o.Bin, name)
		b, _ := turns.Of(p.Bin, name)
		q, _ := turns.Ratio(p.Bin, name, o.Bin, name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%.2f\t%.2f\n", name, number(a.Median), number(b.Median), q.Median, q.Low, q.High)
	}
	return w.Flush()
}

// Paired is what a pair compares with, and on what.
type Paired struct {
	Bin  string // the second folder
	Load string // long or trace
	Meta int    // bytes of metadata
}

func (p Paired) load(o Options) (*Load, error) {
	switch {
	case o.Bin == p.Bin:
		return nil, fmt.Errorf("pair: %s twice", p.Bin)
	case p.Load == long:
		return NewLoad(LongViewings(pairSize), p.Meta), nil
	case p.Load != trace:
		return nil, fmt.Errorf("pair: load %q; want %s or %s", p.Load, long, trace)
	}
	viewings, err := replay.ReadFile(o.Trace)
	if err != nil {
		return nil, err
	}
	return NewLoad(first(viewings, pairSize), p.Meta), nil
}
