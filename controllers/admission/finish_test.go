// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestARequestIsAnsweredAlthoughTheServerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	came := httptest.NewRequestWithContext(ctx, http.MethodPost, Path, nil)
	handler := finish(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel() // the server begins to shut down
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
		if _, bounded := r.Context().Deadline(); !bounded {
			t.Error("the request may take for ever")
		}
	}))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, came)
	if answer.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", answer.Code, answer.Body)
	}
}
