// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
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
