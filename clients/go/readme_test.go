package rdq_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rdq "github.com/rdq-project/rdq/clients/go"
)

// program builds a program of this module and returns it, ready to run against a server.
func (f *fixture) program(folder string, s *server) *exec.Cmd {
	f.Helper()
	binary := filepath.Join(f.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "./"+folder).CombinedOutput(); err != nil {
		f.Fatalf("%s does not build: %v\n%s", folder, err, out)
	}
	program := exec.Command(binary)
	program.Env = append(os.Environ(), "RDQ_SERVER="+s.address())
	dieWithTest(program)
	return program
}

// readmePrograms writes the programs of the README to folders, as they are written there.
func readmePrograms(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, block := range strings.Split(string(readme), "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```\n")
		if err := os.MkdirAll(".build", 0o755); err != nil {
			t.Fatal(err)
		}
		folder, err := os.MkdirTemp(".build", "readme-*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	return folders
}

func TestReadme(t *testing.T) {
	f := start(t)
	folders := readmePrograms(t)
	if len(folders) != 4 {
		t.Fatalf("the README has %d programs", len(folders))
	}
	produce := f.program(folders[0], f.server)
	work, operate := f.program(folders[1], f.server), f.program(folders[2], f.server)

	out, err := produce.CombinedOutput()
	id, said, _ := strings.Cut(string(out), " ")
	if err != nil || said != "<nil>\n" {
		t.Fatalf("the producer: %v\n%s", err, out)
	}
	var log bytes.Buffer
	work.Stdout, work.Stderr = &log, &log
	f.must(work.Start())
	ended := make(chan error, 1)
	go func() { ended <- work.Wait() }()
	defer func() { _ = work.Process.Kill() }()
	if result := f.ends(id, rdq.StatusSucceeded).Result; string(result) != "sent" {
		t.Errorf("the result is %q", result)
	}
	f.must(work.Process.Signal(syscall.SIGTERM))
	if err := receive(f, "the worker ends", ended); err != nil || !strings.Contains(log.String(), "attempt 1 of "+id) {
		t.Errorf("the worker: %v\n%s", err, log.String())
	}
	if out, err := operate.CombinedOutput(); err != nil || string(out) != "redriven: 0 <nil>\n" {
		t.Errorf("the operator: %v\n%s", err, out)
	}
	coordinated := "order 1, generation 1\ninvoice 1, attempt 1\ntrue <nil>\n"
	if out, err := f.program(folders[3], f.server).CombinedOutput(); err != nil || string(out) != coordinated {
		t.Errorf("events, locks and outboxes: %v\n%s", err, out)
	}
	if task := f.get("ship-1"); task.Queue != "shipping" {
		t.Errorf("the task of the commit is in %s", task.Queue)
	}
}

func TestExampleMail(t *testing.T) {
	f := start(t)
	out, err := f.program("examples/mail", f.server).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"TASK_STATUS_SUCCEEDED after 1 attempts", "TASK_STATUS_SUCCEEDED after 2 attempts", "TASK_STATUS_DEAD after 1 attempts",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}
