package allinone

import "context"

// Sweep removes expired data, like the hourly sweep.
func (p *Process) Sweep(ctx context.Context) (int, error) { return p.db.Sweep(ctx) }

// Authorize decides about a gRPC call.
func (p *Process) Authorize(ctx context.Context) error { return p.authorize(ctx) }
