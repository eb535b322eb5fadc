package rdq_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A proxy passes the bytes of connections on, and can hold them back as a network does that lost its way.
type proxy struct {
	listener net.Listener
	target   string

	mu                 sync.Mutex
	changed            *sync.Cond
	holdsUp, holdsDown bool
	connections        map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, connections: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		_ = listener.Close()
		p.hold(false, false)
		p.cut()
	})
	go p.accept()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// hold holds back what goes up to the server, and what comes down from it. What is held is passed on once it is not.
func (p *proxy) hold(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdsUp, p.holdsDown = up, down
	p.changed.Broadcast()
}

// cut ends every connection; what was held back is lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.connections {
		_ = connection.Close()
	}
	clear(p.connections)
	p.changed.Broadcast()
}

func (p *proxy) accept() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = down.Close()
			continue
		}
		p.mu.Lock()
		p.connections[down], p.connections[up] = true, true
		p.mu.Unlock()
		go p.pass(up, down, &p.holdsUp)
		go p.pass(down, up, &p.holdsDown)
	}
}

func (p *proxy) pass(to, from net.Conn, holds *bool) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			for *holds && p.connections[to] {
				p.changed.Wait()
			}
			isOpen := p.connections[to]
			p.mu.Unlock()
			if !isOpen {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A relay passes gRPC calls on, message by message, as something between a worker and its server does.
type relay struct {
	conn *grpc.ClientConn
	// unknown are methods, by their full names, that it says it does not know.
	unknown map[string]bool
	// up and down, if set, see the messages of a method on their way, encoded, and answer what goes on in their place;
	// nil for nothing.
	up, down func(method string, message []byte) []byte
}

// startRelay starts a relay to a server and returns its address.
func startRelay(t *testing.T, target string, r *relay) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.conn, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(r.serve), grpc.MaxRecvMsgSize(16<<20))
	t.Cleanup(func() {
		server.Stop()
		_ = r.conn.Close()
	})
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

func (r *relay) serve(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if r.unknown[method] {
		return status.Error(codes.Unimplemented, "not known here")
	}
	headers, _ := metadata.FromIncomingContext(down.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(down.Context(), headers))
	defer cancel()
	up, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if err := down.RecvMsg(&message); err != nil {
				_ = up.CloseSend()
				return
			}
			if r.up != nil {
				message = r.up(method, message)
			}
			if message != nil && up.SendMsg(&message) != nil {
				return
			}
		}
	}()
	for {
		var message []byte
		if err := up.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if r.down != nil {
			message = r.down(method, message)
		}
		if message != nil {
			if err := down.SendMsg(&message); err != nil {
				return err
			}
		}
	}
}

// rawCodec leaves messages encoded.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

// rewritten changes an encoded message.
func rewritten[Message proto.Message](encoded []byte, message Message, change func(Message)) []byte {
	if err := proto.Unmarshal(encoded, message); err != nil {
		panic(err)
	}
	change(message)
	encoded, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return encoded
}
