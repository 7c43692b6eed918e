package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/bff/token"
)

// Secret signs the tokens of a bench's edges.
const Secret = "an edge's secret of 32 bytes or more"

// Bearer returns a token of a user.
func Bearer(uid string) (string, error) { return token.Mint([]byte(Secret), uid, "", time.Hour) }

// Conn is a player's connection. It costs next to nothing: the figures should show the server's cost.
type Conn struct {
	net.Conn

	in *bufio.Reader
}

// Dial connects to an edge.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, in: bufio.NewReader(c)}, nil
}

// Upgrade turns the connection into a user's WebSocket with one of our protocols.
func (c *Conn) Upgrade(uid, protocol string) error {
	bearer, err := Bearer(uid)
	if err != nil {
		return err
	}
	hello := "GET /v1/stream HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + protocol + "\r\nAuthorization: Bearer " + bearer + "\r\n\r\n"
	if _, err := io.WriteString(c, hello); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade: %s", resp.Status)
	}
	return nil
}

// First bytes of frames.
const (
	TextFrame   = 0x81
	BinaryFrame = 0x82
	ping        = 0x89
	pong        = 0x8a
)

// AppendFrame appends the head of a masked frame. The mask is zero and leaves the payload unchanged.
func AppendFrame(dst []byte, kind byte, size int) []byte {
	switch {
	case size < 126:
		dst = append(dst, kind, 0x80|byte(size))
	case size < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, kind, 0x80|126), uint16(size))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, kind, 0x80|127), uint64(size))
	}
	return append(dst, 0, 0, 0, 0)
}

// ReadFrame passes the next message to read, which must not keep it. It answers pings on the way.
func (c *Conn) ReadFrame(read func([]byte) error) error {
	head, err := c.in.Peek(2)
	if err != nil {
		return err
	}
	kind, from, size := head[0], 2, int(head[1])
	switch size {
	case 126:
		if head, err = c.in.Peek(4); err != nil {
			return err
		}
		from, size = 4, int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		return errors.New("a very long answer")
	}
	text, err := c.in.Peek(from + size)
	if err != nil {
		return err
	}
	if kind == ping {
		if _, err := c.Write(append(AppendFrame(nil, pong, size), text[from:]...)); err != nil {
			return err
		}
	} else if err := read(text[from:]); err != nil {
		return err
	}
	if _, err := c.in.Discard(from + size); err != nil || kind != ping {
		return err
	}
	return c.ReadFrame(read)
}

// ReadResponse passes the body of the next response to read, which must not keep it.
func (c *Conn) ReadResponse(read func([]byte) error) error {
	length, err := c.length()
	if err != nil {
		return err
	}
	if length == chunked {
		text, err := io.ReadAll(httputil.NewChunkedReader(c.in))
		if err != nil {
			return err
		}
		if _, err := c.in.Discard(len("\r\n")); err != nil { // behind the last chunk
			return err
		}
		return read(text)
	}
	text, err := c.in.Peek(length)
	if err != nil {
		return err
	}
	if err := read(text); err != nil {
		return err
	}
	_, err = c.in.Discard(length)
	return err
}

const chunked = -1

// length reads the head of a response and returns the length of its body.
func (c *Conn) length() (n int, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		switch text := string(line); {
		case strings.HasPrefix(text, "Content-Length: "):
			if n, err = strconv.Atoi(strings.TrimSpace(text[len("Content-Length: "):])); err != nil {
				return 0, err
			}
		case strings.HasPrefix(text, "Transfer-Encoding: chunked"):
			n = chunked
		case len(line) == 2:
			return n, nil
		}
	}
}
