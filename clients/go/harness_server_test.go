package rdq_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// limit is how long a test waits for what it expects: much longer than it takes.
const limit = 4 * time.Minute

// patience waits in small steps, and ends after the limit: of the time that this process ran, so that a machine that
// stands still for long fails no test.
type patience time.Duration

func (p *patience) step(length time.Duration) bool {
	time.Sleep(length)
	*p += patience(length)
	return time.Duration(*p) < limit
}

// A server is `rdq serve` as a process, ended with the test, on a file and ports of its own.
type server struct {
	t       *testing.T
	folder  string
	port    int
	http    int
	args    []string
	process *exec.Cmd
	exited  chan struct{}

	mu  sync.Mutex
	log []string
}

// startServer starts a server and waits until it serves.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, folder: t.TempDir(), args: args}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("the server's last lines:\n%s", strings.Join(s.log[max(0, len(s.log)-40):], "\n"))
		}
	})
	for range 5 {
		s.port, s.http = freePort(), freePort()
		s.spawn()
		if s.serves() {
			return s
		}
		if !s.logged("cannot listen") {
			t.Fatalf("the server did not start")
		}
	}
	t.Fatal("no free port in five tries")
	return nil
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) spawn() {
	arguments := append([]string{
		"serve",
		"--listen", s.address(),
		"--http", fmt.Sprintf("127.0.0.1:%d", s.http),
		"--storage", "sqlite:" + filepath.Join(s.folder, "rdq.db"),
		"--shutdown-grace", "1h",
	}, s.args...)
	s.process = exec.Command(serverBinary(s.t), arguments...)
	s.process.Dir = s.folder
	s.process.Env = append(os.Environ(), "NO_COLOR=1")
	dieWithTest(s.process)
	stderr, err := s.process.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func(process *exec.Cmd, exited chan struct{}) {
		s.read(stderr)
		_ = process.Wait()
		close(exited)
	}(s.process, s.exited)
}

func (s *server) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
	}
}

func (s *server) logged(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.log, "\n"), text)
}

// serves waits until the server serves; false if it ended instead.
func (s *server) serves() bool {
	conn, err := grpc.NewClient(s.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	for waited := new(patience); waited.step(20 * time.Millisecond); {
		select {
		case <-s.exited:
			return false
		default:
		}
		conn.ResetConnectBackoff()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		answer, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		cancel()
		if err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			return true
		}
	}
	s.t.Fatal("the server does not serve")
	return false
}

// kill ends the server as SIGKILL does, and waits for its end.
func (s *server) kill() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill()
		<-s.exited
	}
}

// restart starts a killed server again, on its port and file.
func (s *server) restart() {
	s.t.Helper()
	for range 20 {
		s.spawn()
		if s.serves() {
			return
		}
		time.Sleep(200 * time.Millisecond) // the port, or the lock of the file, of a process that is still going
	}
	s.t.Fatal("the server did not start again")
}

func serverBinary(t *testing.T) string {
	path := os.Getenv("RDQ_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "target", "debug", "rdq")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(absolute); err != nil {
		t.Fatalf("there is no server (name one with RDQ_BIN): %v", err)
	}
	return absolute
}

var portsTried atomic.Uint32

// freePort finds a port that nobody has now, below those that the system gives to outgoing connections, so that it is
// still free when a killed server wants it back.
func freePort() int {
	const first, count = 20_000, 12_000
	start := uint32(os.Getpid()) * 37
	for {
		port := int(first + (start+portsTried.Add(1))%count)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = listener.Close()
			return port
		}
	}
}
