// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolveCDI(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.json": `{"kind":"v/gpu","containerEdits":{"env":["COMMON=1"]},"devices":[
			{"name":"0","containerEdits":{"env":["GPU=0"],"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/driver/dev/nvidia0"}]}},
			{"name":"1","containerEdits":{"mounts":[{"hostPath":"/h","containerPath":"/c","options":["ro"]}]}}]}`,
		"b.yaml": "kind: v/other\ndevices:\n- name: x\n  containerEdits: {env: [OTHER=x]}\n- name: twice\n- name: twice\n",
		"c.json": "broken",
		"d.txt":  "no specification",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	specs, err := loadCDI(dir)
	if err == nil || !strings.Contains(err.Error(), "c.json") || strings.Contains(err.Error(), "a.json") {
		t.Errorf("loading says %v, want a word on c.json alone", err)
	}
	for _, tc := range []struct {
		name    string
		ids     []string
		want    cdiEdits
		wantErr string
	}{
		{name: "no devices change nothing"},
		{
			name: "common edits are made once for two devices", ids: []string{"v/gpu=0", "v/gpu=1"},
			want: cdiEdits{
				Env:         []string{"COMMON=1", "GPU=0"},
				DeviceNodes: []cdiDeviceNode{{Path: "/dev/nvidia0", HostPath: "/driver/dev/nvidia0"}},
				Mounts:      []cdiMount{{HostPath: "/h", ContainerPath: "/c", Options: []string{"ro"}}},
			},
		},
		{name: "YAML is read as well", ids: []string{"v/other=x"}, want: cdiEdits{Env: []string{"OTHER=x"}}},
		{name: "an unknown device is an error", ids: []string{"v/gpu=9"}, wantErr: "v/gpu=9"},
		{name: "a device defined twice is an error", ids: []string{"v/other=twice"}, wantErr: "2 CDI specifications"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := resolveCDI(specs, tc.ids)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("resolveCDI says %v, want %q in it", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the edits differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissingPaths(t *testing.T) {
	edits := cdiEdits{
		DeviceNodes: []cdiDeviceNode{{Path: "/dev/a", HostPath: "/driver/dev/a"}, {Path: "/dev/b"}},
		Mounts:      []cdiMount{{HostPath: "/there", ContainerPath: "/x"}},
	}
	there := map[string]bool{"/there": true, "/driver/dev/a": true}
	err := missingPaths(edits, func(path string) bool { return there[path] })
	if err == nil || !strings.Contains(err.Error(), "/dev/b") || strings.Contains(err.Error(), "/driver/dev/a") {
		t.Errorf("missingPaths says %v, want a word on /dev/b alone", err)
	}
	there["/dev/b"] = true
	if err := missingPaths(edits, func(path string) bool { return there[path] }); err != nil {
		t.Errorf("with all files there: %v", err)
	}
}
