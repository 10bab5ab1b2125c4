// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/sharefs"
)

// ErrLeft says that the agent was asked to leave and that nothing on the node needs it any more: no claim, no MIG instance,
// no daemon. What is left are its files.
var ErrLeft = errors.New("the agent was asked to leave the node")

// leaveRetry is how long it takes to see that a node is not left after all, and to try again what could not be removed.
const leaveRetry = 5 * time.Second

// leave is ErrLeft where the records show that nothing is left to be taken back.
func (a *Agent) leave(p plan) error {
	made, err := a.Records.Made()
	if err != nil {
		return fmt.Errorf("reading the instances of layouts: %w", err)
	}
	if len(p.record.GPUs)+len(p.claims.Claims)+len(p.claims.Idle)+len(p.claims.MIGModeFoundOff)+len(made.GPUs) > 0 {
		return nil
	}
	return ErrLeft
}

// Leave removes the agent's files, after Run has returned ErrLeft, says so in the GPUNode, and waits until the node is not to
// be left any more: then it is ErrNodeReplaced, since all begins anew. It is nil where the context ended it.
func Leave(ctx context.Context, c Config) error {
	cluster, _, err := clients(c)
	if err != nil {
		return err
	}
	for {
		// Nobody is a client any more, so no daemon stays; its record goes only after it has ended.
		removed := daemons(c).Keep(ctx, nil)
		if removed == nil {
			removed = removeFiles(c)
		}
		if removed != nil {
			c.Log.Error(removed, "Not everything could be removed from the node; it is tried again")
		}
		node, err := cluster.GPUNode(ctx, true)
		switch {
		case err != nil:
			c.Log.Error(err, "It is not known whether the node is still to be left")
		case node == nil:
			// All is deleted, and this agent will be. It must not make anew what nobody removes after it.
		case !node.Leaving():
			return ErrNodeReplaced
		default:
			if err := tellLeft(ctx, cluster, node, removed, metav1.NewTime(c.Clock.Now())); err != nil {
				c.Log.Error(err, "It is not told yet that the node is left")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(leaveRetry):
		}
	}
}

// tellLeft writes the status of a node that is left.
func tellLeft(ctx context.Context, cluster Cluster, node *v1alpha1.GPUNode, removed error, now metav1.Time) error {
	condition := metav1.Condition{
		Type: v1alpha1.NodeReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeft, LastTransitionTime: now,
		Message: "nothing of Sluice is on the node any more but this agent",
	}
	if removed != nil {
		condition.Reason, condition.Message = v1alpha1.ReasonInUse, "the agent leaves, but its files cannot be removed: "+removed.Error()
	}
	changed := node.DeepCopy()
	changed.Status.ObservedGeneration = node.Generation
	meta.SetStatusCondition(&changed.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(node.Status, changed.Status) {
		return nil
	}
	if err := cluster.UpdateStatus(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// removeFiles removes all that is the agent's on the node. The directories themselves are mount points in a container: they
// stay, empty.
func removeFiles(c Config) error {
	var failed []error
	dirs := []string{c.ShareDir, c.MPSDir, filepath.Join(c.PluginsDir, v1alpha1.DriverName)}
	if c.CDIHookPath == "" || c.StartHookPath == "" {
		dirs = append(dirs, c.HostBinDir)
	}
	for _, dir := range append(dirs, c.StateDir) {
		failed = append(failed, empty(dir))
	}
	if c.ShareBytes > 0 {
		failed = append(failed, sharefs.Unmount(c.ShareDir, c.MPSNamespace))
	}
	if c.MPSCgroup != "" {
		if err := os.Remove(c.MPSCgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("removing the cgroup of MPS daemons: %w", err))
		}
	}
	return errors.Join(failed...)
}

// empty removes what is in a directory, and the directory itself where that can be.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := []error{err}
	for _, entry := range entries {
		failed = append(failed, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("emptying %s: %w", dir, err)
	}
	_ = os.Remove(dir) // a mount point stays
	return nil
}
