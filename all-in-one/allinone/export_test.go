package allinone

import "context"

// Sweep removes what has expired, as the process does once an hour.
func (p *Process) Sweep(ctx context.Context) (int, error) { return p.db.Sweep(ctx) }
