// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestTemplate(t *testing.T) {
	for _, tc := range []struct{ name, encoded, want string }{
		{
			name:    "a share names amounts of the pool's class",
			encoded: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":2,"memoryMi":10240,"compute":30},{"name":"b","count":1}]}`,
			want: `
spec:
  devices:
    requests:
    - name: a
      exactly:
        deviceClassName: shared.sluice.dev
        allocationMode: ExactCount
        count: 2
        capacity:
          requests:
            compute: "30"
            memory: 10Gi
    - name: b
      exactly:
        deviceClassName: shared.sluice.dev
        allocationMode: ExactCount
        count: 1
`,
		},
		{
			name:    "requests that must not share a GPU differ in its UUID",
			encoded: `{"version":1,"pool":"shared","form":"Shared","distinct":true,"requests":[{"name":"a","count":1,"memoryMi":60416},{"name":"b","count":1,"memoryMi":60416}]}`,
			want: `
spec:
  devices:
    constraints:
    - distinctAttribute: gpu.sluice.dev/uuid
      requests: [a, b]
    requests:
    - name: a
      exactly:
        deviceClassName: shared.sluice.dev
        allocationMode: ExactCount
        count: 1
        capacity: {requests: {memory: 59Gi}}
    - name: b
      exactly:
        deviceClassName: shared.sluice.dev
        allocationMode: ExactCount
        count: 1
        capacity: {requests: {memory: 59Gi}}
`,
		},
		{
			name:    "whole GPUs are the pool's class without amounts",
			encoded: `{"version":1,"pool":"whole","form":"Exclusive","requests":[{"name":"a","count":8}]}`,
			want: `
spec:
  devices:
    requests:
    - name: a
      exactly:
        deviceClassName: whole.sluice.dev
        allocationMode: ExactCount
        count: 8
`,
		},
		{
			name:    "MIG instances are alternatives of the profiles' classes in the pool",
			encoded: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":9216,"profiles":["1g.10gb","7g.80gb"]}]}`,
			want: `
spec:
  devices:
    requests:
    - name: a
      firstAvailable:
      - name: 1g-10gb
        deviceClassName: mig-1g.10gb.sluice.dev
        selectors:
        - cel:
            expression: device.attributes["gpu.sluice.dev"].?pool.orValue("") == "mig"
        allocationMode: ExactCount
        count: 1
        capacity:
          requests:
            memory: 9Gi
      - name: 7g-80gb
        deviceClassName: mig-7g.80gb.sluice.dev
        selectors:
        - cel:
            expression: device.attributes["gpu.sluice.dev"].?pool.orValue("") == "mig"
        allocationMode: ExactCount
        count: 1
        capacity:
          requests:
            memory: 9Gi
`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			canonical, err := Decode(tc.encoded)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(Template(&canonical))
			if err != nil {
				t.Fatal(err)
			}
			var gotTree, wantTree map[string]any
			if err := yaml.Unmarshal(got, &gotTree); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tc.want), &wantTree); err != nil {
				t.Fatal(err)
			}
			delete(gotTree, "metadata")
			if diff := cmp.Diff(wantTree, gotTree); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
		})
	}
}
