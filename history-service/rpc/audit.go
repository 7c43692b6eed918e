package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/playhead/playhead/internal/audit"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// audited logs removals, imports, and what operators do to a user.
func (s *Server) audited(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := handle(ctx, req)
	e := audit.Entry{Err: err}
	switch req := req.(type) {
	case *historyv1.DeleteRequest:
		answer, _ := resp.(*historyv1.DeleteResponse)
		e.UID, e.Count = req.GetUid(), int(answer.GetDeleted())
	case *historyv1.ClearRequest:
		e.UID = req.GetUid()
	case *historyv1.ImportRequest:
		e.UID, e.Count = req.GetUid(), len(req.GetRecords())
	case *historyv1.EraseRequest:
		answer, _ := resp.(*historyv1.EraseResponse)
		for _, p := range answer.GetPlaces() {
			e.Count += int(p.GetFound() - p.GetLeft())
		}
		if !req.GetDryRun() {
			e.UID = req.GetUid()
		}
	case *historyv1.RebaseRequest:
		answer, _ := resp.(*historyv1.RebaseResponse)
		e.Count = len(answer.GetRecords())
		if !req.GetDryRun() {
			e.UID = req.GetUid()
		}
	}
	if e.UID == "" || s.fromOwnEdge(ctx) {
		return resp, err
	}
	_, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	e.Action, e.By = strings.ToLower(method), callerOf(ctx)
	audit.Log(ctx, s.cfg.Logger, e)
	return resp, err
}

func (s *Server) fromOwnEdge(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return ok && s.cfg.Edge != nil && p.Addr == s.cfg.Edge.Addr()
}

// callerOf names a caller by its certificate, or its address.
func callerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	if conn, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(conn.State.PeerCertificates) > 0 {
		return conn.State.PeerCertificates[0].Subject.String()
	}
	return p.Addr.String()
}
