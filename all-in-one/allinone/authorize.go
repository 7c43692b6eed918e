package allinone

import (
	"context"
	"net"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/token"
)

// authorize allows gRPC calls of this machine. Others need a token with the scope admin, since they may read and
// erase every user.
func (p *Process) authorize(ctx context.Context) error {
	if p.cfg.InsecureRPC || p.local(ctx) {
		return nil
	}
	header := metadata.ValueFromIncomingContext(ctx, "authorization")
	text, err := token.Bearer(slices.Concat(header, []string{""})[0])
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error()+" with the scope admin, or --insecure-rpc on the server")
	}
	caller, err := p.tokens.Read(text)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	if !slices.Contains(caller.Scopes, "admin") {
		return status.Error(codes.PermissionDenied, "the token lacks the scope admin")
	}
	return nil
}

// local reports whether the caller is in this process or on this machine: its address is loopback, or the server's
// own.
func (p *Process) local(ctx context.Context) bool {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	if caller.Addr == p.inner.Addr() {
		return true
	}
	from, ok := caller.Addr.(*net.TCPAddr)
	to, own := caller.LocalAddr.(*net.TCPAddr)
	return ok && (from.IP.IsLoopback() || own && from.IP.Equal(to.IP))
}
