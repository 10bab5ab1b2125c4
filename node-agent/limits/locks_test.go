// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bufio"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// lockProgram takes every other byte of a file, far behind what anybody asks for, and waits for the end of its input.
const lockProgram = `#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
int main(int n, char **arguments) {
  int fd = open(arguments[1], O_RDWR), locks = n > 2 ? atoi(arguments[2]) : 0;
  for (int i = 0; i < locks; i++) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1000000 + 2 * i, .l_len = 1};
    if (fcntl(fd, F_SETLK, &lock) != 0) return 1;
  }
  puts("locked");
  fflush(stdout);
  getchar();
  return 0;
}
`

// TestManyLocksOfATenantCostTheReaderLittle has a tenant claim that all its slots run, and take so many locks that each question
// for the life of one is slow.
func TestManyLocksOfATenantCostTheReaderLittle(t *testing.T) {
	const locks, slots, most = 10_000, 1024, 20 * time.Millisecond
	door, err := limits.New(filepath.Join(t.TempDir(), "shares"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := door.Write(limits.Share{
		ClaimUID: "a", UUID: "GPU-00000000-0000-0000-0000-000000000000", ComputeShare: 5000, Enforce: limits.EnforceCompute | limits.EnforceMemory,
	})
	if err != nil {
		t.Fatal(err)
	}
	usage := filepath.Join(dir, limits.UsageFile)
	page, err := os.ReadFile(usage)
	if err != nil {
		t.Fatal(err)
	}
	for at, word := range map[int]uint32{0: 0x55434c53, 4: 2, 8: 1, 12: slots} {
		binary.NativeEndian.PutUint32(page[at:], word)
	}
	for i := range slots {
		slot := page[4096+64*i:]
		binary.NativeEndian.PutUint64(slot[8:], uint64(i+1))
		binary.NativeEndian.PutUint64(slot[56:], uint64(limits.PaceRuns))
	}
	if err := os.WriteFile(usage, page, 0o600); err != nil { //nolint:gosec // G703: it lies below the directory of the test
		t.Fatal(err)
	}
	takeLocks(t, usage, locks)
	turn, err := door.Turn("a", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turn.Close() })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime(t)
	if _, err := turn.Read(int64(time.Second), true); err != nil {
		t.Fatal(err)
	}
	if got := threadTime(t) - begun; got > most {
		t.Errorf("one reading took %v of the thread's time, want at most %v", got, most)
	}
}

func takeLocks(t *testing.T, file string, locks int) {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "locks.c"), filepath.Join(dir, "locks")
	if err := os.WriteFile(source, []byte(lockProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, file, strconv.Itoa(locks))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("%d locks: %q, %v", locks, line, err)
	}
}

func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
