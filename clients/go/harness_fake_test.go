package rdq_test

import (
	"context"
	"net"
	"path"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// A foreigner is a server that says which version of the contract it speaks, and knows no other call.
type foreigner struct {
	rdqv1.UnimplementedTaskServiceServer
	version string
	address string

	mu    sync.Mutex
	calls []string
}

func startForeigner(t *testing.T, version string) *foreigner {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &foreigner{version: version, address: listener.Addr().String()}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(func(
			ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			f.note(info.FullMethod)
			return handler(ctx, request)
		}),
		grpc.StreamInterceptor(func(
			service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
		) error {
			f.note(info.FullMethod)
			return handler(service, stream)
		}),
	)
	rdqv1.RegisterTaskServiceServer(server, f)
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return f
}

func (f *foreigner) note(method string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, path.Base(method))
}

// called are the names of the methods that were called, in order.
func (f *foreigner) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *foreigner) GetCapabilities(
	context.Context, *rdqv1.GetCapabilitiesRequest,
) (*rdqv1.GetCapabilitiesResponse, error) {
	return &rdqv1.GetCapabilitiesResponse{ContractVersion: f.version}, nil
}
