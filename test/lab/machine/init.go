// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// namespaces are the process attributes of a machine's first process.
func namespaces(s Spec) *syscall.SysProcAttr {
	flags := uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC)
	if !s.HostPIDs {
		flags |= syscall.CLONE_NEWPID
	}
	if !s.HostNetwork {
		flags |= syscall.CLONE_NEWNET
	}
	return &syscall.SysProcAttr{Setsid: true, Cloneflags: flags}
}

// Init is a machine's first process: it makes the machine out of its namespaces, starts the supervisor, and takes in the
// processes that lose their parents. With it all others end, where the PID namespace is the machine's own.
func Init(lab cluster.Dir, name string) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if err := boot(state); err != nil {
		return fmt.Errorf("booting %s: %w", name, err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"lab", "machine", "supervise", "--dir", string(lab), "--name", name},
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range signals {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		case ended == pid && status.ExitStatus() != 0:
			return fmt.Errorf("the supervisor ended with status %d", status.ExitStatus())
		case ended == pid:
			return nil
		}
	}
}

// boot does what a kernel and an init system have done when kubelet starts.
func boot(s *State) error {
	if err := mountAll(s); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Spec.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := addresses(s.Spec); err != nil {
		return err
	}
	return makeCgroups(cgroupRoot, s)
}

// writeBootID writes the id of a new boot, as the kernel would show it.
func writeBootID(path string) error {
	var id [16]byte
	_, _ = rand.Read(id[:])
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
		return fmt.Errorf("writing the boot's id: %w", err)
	}
	return nil
}

// addresses gives the machine's loopback the node's address and that of the kubernetes Service: pods reach both through
// their gateway, and no rule of a firewall is needed.
func addresses(s Spec) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting loopback up: %w", err)
	}
	wanted := []string{serviceAddress}
	if !s.HostNetwork {
		wanted = append(wanted, s.NodeIP)
	}
	for _, address := range wanted {
		own := &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: own}); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("adding the address %s: %w", address, err)
		}
	}
	return nil
}

// mountAll makes the machine's file systems: its own where state is kept, the host's for the rest.
func mountAll(s *State) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from the host's mounts: %w", err)
	}
	if !s.Spec.HostPIDs {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting /proc: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	// The same place by its old name, where that is no link.
	if target, err := filepath.EvalSymlinks("/var/run"); err == nil && target != "/run" {
		if err := bind("/run", "/var/run"); err != nil {
			return err
		}
	}
	for inside, own := range map[string]string{
		"/var/lib/kubelet": "lib/kubelet", "/var/lib/containerd": "lib/containerd", "/var/lib/sluice": "lib/sluice",
		"/var/lib/cni": "lib/cni", "/var/log/pods": "log/pods", "/var/log/containers": "log/containers", "/etc/cdi": "etc-cdi",
	} {
		if err := bind(s.Dir.path(own), inside); err != nil {
			return err
		}
	}
	if s.Spec.StateDisk > 0 {
		if out, err := exec.Command("mount", "-o", "loop", s.Dir.stateDisk(), "/var/lib/sluice").CombinedOutput(); err != nil {
			return fmt.Errorf("mounting the disk of Sluice's state: %w\n%s", err, out)
		}
	}
	if err := bind(s.Dir.bootID(), bootIDFile); err != nil {
		return err
	}
	if err := shieldSettings(s.Dir.path("sysctl")); err != nil {
		return err
	}
	if err := mountGPUs(s); err != nil {
		return err
	}
	// What a container mounts with propagation must be seen on the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts with containers: %w", err)
	}
	return nil
}

// mountGPUs puts the fake driver where a real one would be.
func mountGPUs(s *State) error {
	if s.Spec.GPUs.FakeGPU == "" {
		return nil
	}
	if err := bind(s.Dir.DriverRoot(), DriverRoot); err != nil {
		return err
	}
	if err := bind(s.Dir.GPUState(), GPUStatePath); err != nil {
		return err
	}
	return bind(filepath.Join(s.Dir.DriverRoot(), "proc", "driver"), "/proc/driver")
}

// shieldSettings puts files of the machine's over the settings of the kernel that kubelet changes: the kernel is the host's.
func shieldSettings(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the place of settings: %w", err)
	}
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		place := filepath.Join("/proc/sys", setting)
		content, err := os.ReadFile(place)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the setting %s: %w", setting, err)
		}
		shield := filepath.Join(dir, filepath.Base(setting))
		if err := os.WriteFile(shield, content, 0o644); err != nil { //nolint:gosec // its name is in the list above
			return fmt.Errorf("writing a machine's setting: %w", err)
		}
		if err := bind(shield, place); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or directory at another place, which is made where it is missing.
func bind(from, at string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("mounting at %s: %w", at, err)
	}
	place := at
	if !info.IsDir() {
		place = filepath.Dir(at)
	}
	if err := os.MkdirAll(place, 0o755); err != nil {
		return fmt.Errorf("making the place of %s: %w", at, err)
	}
	if _, err := os.Stat(at); !info.IsDir() && errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			return fmt.Errorf("making the place of %s: %w", at, err)
		}
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", from, at, err)
	}
	return nil
}
