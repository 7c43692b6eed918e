package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/trust"
)

// remote is the gRPC server that a command talks to.
type remote struct {
	Service string     `help:"Address of history-service, or of the gRPC server of playhead serve." default:"127.0.0.1:7070"`
	Token   string     `help:"Token with the scope admin, for a playhead serve on another machine. Prefer the variable: flags are for all to see."`
	Peer    trust.Peer `embed:"" prefix:"service-"`
}

func (r *remote) check() error { return connect.Addresses("--service", r.Service) }

// dial connects to the server. The caller closes the connection.
func (r *remote) dial() (*grpc.ClientConn, error) {
	conf, err := r.Peer.Config()
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if conf != nil {
		options[0] = grpc.WithTransportCredentials(credentials.NewTLS(conf))
	}
	if r.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(r.Token)))
	}
	conn, err := grpc.NewClient(r.Service, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", r.Service, err)
	}
	return conn, nil
}

// dialFor is dial for a command about a user.
func (r *remote) dialFor(uid string) (*grpc.ClientConn, error) {
	if err := errors.Join(history.ValidateUID(uid), r.check()); err != nil {
		return nil, err
	}
	return r.dial()
}

// bearer is a token as credentials of each call.
type bearer string

// GetRequestMetadata returns the header with the token.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity allows plain text, such as in a private network.
func (bearer) RequireTransportSecurity() bool { return false }
