// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net/http"
	"time"
)

// answerIn is how long the API server waits for an answer: timeoutSeconds in config/webhook.
const answerIn = 5 * time.Second

// finish has requests that have come answered although the manager ends. Its server cancels them when it begins to shut down, and
// then waits for their answers: each would be a refusal of a pod that nothing is wrong with.
func finish(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerIn)
		defer cancel()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}
