// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
)

// Gone are the recorded claims, by UID, that the API does not know any more, or knows as another object of the same
// name, and that no pod uses. kubelet normally unprepares a claim before it goes; one lost with kubelet's own records never
// would be. A claim whose pod is still there has only been deleted: its tenant could do that to have its GPU given to
// somebody else as well.
func (p *Preparer) Gone(ctx context.Context) ([]string, error) {
	recorded, err := p.Records.Claims()
	if err != nil {
		return nil, fmt.Errorf("reading the prepared claims: %w", err)
	}
	var gone []string
	var failed []error
	for _, claim := range recorded.Sorted() {
		found, err := p.API.Get(ctx, claim.Namespace, claim.Name)
		if err != nil {
			failed = append(failed, fmt.Errorf("reading %s: %w", describe(claim), err))
			continue
		}
		if found != nil && string(found.UID) == claim.UID {
			continue
		}
		user, err := p.API.User(ctx, claim.Namespace, claim.Name)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("finding out who uses %s: %w", describe(claim), err))
		case user != "":
			p.Log.Info("A claim was deleted under a pod that still uses it; its devices stay the pod's", "claim", describe(claim), "pod", user)
		default:
			gone = append(gone, claim.UID)
		}
	}
	return gone, errors.Join(failed...)
}
