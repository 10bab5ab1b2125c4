// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Leader is the component's name of the manager that leads; "" where none says so.
func (s *Stack) Leader(ctx context.Context) string {
	for i := range s.metrics {
		value, err := s.Metric(ctx, i, `leader_election_master_status{name="sluice-manager"}`)
		if err == nil && value == "1" {
			return ManagerName(i)
		}
	}
	return ""
}

// Elect waits until a manager leads. A lease that a manager left when it was killed is taken away: it would last a minute.
func (s *Stack) Elect(ctx context.Context) error {
	if s.Leader(ctx) == "" {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "sluice-manager"}}
		if err := client.IgnoreNotFound(s.Client.Delete(ctx, lease)); err != nil {
			return fmt.Errorf("taking the dead leader's lease away: %w", err)
		}
	}
	return Poll(ctx, "a manager leads", func(ctx context.Context) (bool, error) { return s.Leader(ctx) != "", nil })
}

// Metric reads one metric of a replica of the manager, by its name with its labels.
func (s *Stack) Metric(ctx context.Context, replica int, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics[replica]+"/metrics", nil)
	if err != nil {
		return "", fmt.Errorf("asking for metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("reading the metrics of %s: %w", ManagerName(replica), err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s has no metric %s", ManagerName(replica), name)
}
