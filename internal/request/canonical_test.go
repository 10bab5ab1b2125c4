// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const encodedShared = `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024}]}`

func TestDecodeRefuses(t *testing.T) {
	request := func(fields string) string {
		return `{"version":1,"pool":"p","form":"Shared","requests":[` + fields + `]}`
	}
	mig := func(fields string) string {
		return `{"version":1,"pool":"p","form":"MIG","requests":[` + fields + `]}`
	}
	for _, tc := range []struct{ name, encoded, want string }{
		{"nothing", "", "reading the canonical request: EOF"},
		{"no JSON", "hello", "reading the canonical request: invalid character 'h' looking for beginning of value"},
		{"an unknown field", `{"version":1,"class":"x"}`, `reading the canonical request: json: unknown field "class"`},
		{"another version", `{"version":2,"pool":"p"}`, "the canonical request is invalid: version is 2, not 1"},
		{"spaces", strings.Replace(encodedShared, ",", ", ", 1), "the canonical request is not in canonical form"},
		{"something behind it", encodedShared + "{}", "the canonical request is not in canonical form"},
		{"a field given twice", strings.Replace(encodedShared, `"pool":"shared"`, `"pool":"x","pool":"shared"`, 1), "the canonical request is not in canonical form"},
		{"another letter case", strings.Replace(encodedShared, "version", "Version", 1), "the canonical request is not in canonical form"},
		{"too many bytes", strings.Repeat(" ", maxEncoded) + encodedShared, "the canonical request has 16481 bytes, more than 16384"},
		{"a pool that could not exist", `{"version":1,"pool":"a\"b","form":"Shared","requests":[]}`, `the canonical request is invalid: "a\"b" names no pool`},
		{"an unknown form", `{"version":1,"pool":"p","form":"Static","requests":[]}`, `the canonical request is invalid: "Static" is no form`},
		{"no request", request(""), "the canonical request is invalid: 0 requests, not 1 to 32"},
		{"requests out of order", request(`{"name":"b","count":1},{"name":"a","count":1}`), "the canonical request is invalid: requests are not ordered by name"},
		{"one request twice", request(`{"name":"a","count":1},{"name":"a","count":1}`), "the canonical request is invalid: requests are not ordered by name"},
		{"a bad request name", request(`{"name":"A","count":1}`), `the canonical request is invalid: request "A": the name is no DNS label`},
		{"no device", request(`{"name":"a","count":0}`), `the canonical request is invalid: request "a": count is 0, not 1 to 16`},
		{"negative memory", request(`{"name":"a","count":1,"memoryMi":-1}`), `the canonical request is invalid: request "a": memoryMi is -1, not 0 to 67108864`},
		{"too much compute", request(`{"name":"a","count":1,"compute":101}`), `the canonical request is invalid: request "a": compute is 101, not 0 to 100`},
		{"distinct of one request", `{"version":1,"pool":"p","form":"Shared","distinct":true,"requests":[{"name":"a","count":1}]}`, "the canonical request is invalid: distinct is for several requests of a shared pool"},
		{"distinct of exclusive GPUs", `{"version":1,"pool":"p","form":"Exclusive","distinct":true,"requests":[{"name":"a","count":1},{"name":"b","count":1}]}`, "the canonical request is invalid: distinct is for several requests of a shared pool"},
		{"distinct that is written out although it is false", strings.Replace(encodedShared, `"requests"`, `"distinct":false,"requests"`, 1), "the canonical request is not in canonical form"},
		{"profiles of a shared pool", request(`{"name":"a","count":1,"profiles":["1g.10gb"]}`), `the canonical request is invalid: request "a": profiles are for MIG pools`},
		{"a profile with a suffix", mig(`{"name":"a","count":1,"memoryMi":1,"profiles":["1g.10gb+me"]}`), `the canonical request is invalid: request "a": profile "1g.10gb+me" is unknown or given twice`},
		{"a profile twice", mig(`{"name":"a","count":1,"memoryMi":1,"profiles":["1g.10gb","1g.10gb"]}`), `the canonical request is invalid: request "a": profile "1g.10gb" is unknown or given twice`},
		{"MIG without a profile", mig(`{"name":"a","count":1,"memoryMi":1}`), `the canonical request is invalid: request "a": 0 profiles, not 1 to 8`},
		{"MIG without an amount", mig(`{"name":"a","count":1,"profiles":["1g.10gb"]}`), `the canonical request is invalid: request "a": neither memory nor compute`},
		{
			"an amount of an exclusive GPU",
			`{"version":1,"pool":"p","form":"Exclusive","requests":[{"name":"a","count":1,"compute":1}]}`,
			`the canonical request is invalid: request "a": an exclusive GPU is given whole, without amounts`,
		},
		{
			"more devices than a claim may have",
			request(`{"name":"a","count":16},{"name":"b","count":16},{"name":"c","count":1}`),
			"the canonical request is invalid: the pod asks for 33 GPUs in all, more than the 32 that one pod may have: divide it into several pods",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Decode(tc.encoded)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// The hash is an address that outlives the manager: it must not change from one version to the next.
func TestHashIsStable(t *testing.T) {
	got := TemplateName(Hash(encodedShared))
	if want := "sluice-d33df5e8eb55234c25ef"; got != want {
		t.Errorf("template name: got %s, want %s", got, want)
	}
	hash, ours := HashOfTemplate(got)
	if !ours || hash != Hash(encodedShared) {
		t.Errorf("hash of the template's name: got %q, %v", hash, ours)
	}
	for _, name := range []string{"sluice-", "sluice-d33df5e8eb55234c25e", "sluice-D33df5e8eb55234c25ef", "other-d33df5e8eb55234c25ef", "sluice-d33df5e8eb55234c25efc"} {
		if _, ours := HashOfTemplate(name); ours {
			t.Errorf("%s is taken for one of our names", name)
		}
	}
}

func TestLargestRequestIsWithinTheBound(t *testing.T) {
	canonical := Canonical{Version: 1, Pool: strings.Repeat("p", maxPoolName), Form: MIG}
	for i := range maxRequests {
		request := Request{
			Name: strings.Repeat("a", maxRequestName-2) + string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}), Count: 1, MemoryMi: MaxMemoryMi, Compute: 100,
		}
		for j := range maxAlternatives {
			request.Profiles = append(request.Profiles, "1"+string([]byte{'0' + byte(j)})+"g.1000gb")
		}
		canonical.Requests = append(canonical.Requests, request)
	}
	encoded, err := canonical.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(encoded); err != nil {
		t.Errorf("the largest request (%d bytes) is refused: %v", len(encoded), err)
	}
}

// Whatever Decode accepts it must give back as it was, with a template that can be made from it.
func FuzzDecode(f *testing.F) {
	f.Add(encodedShared)
	f.Add(`{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":2,"memoryMi":9216,"profiles":["1g.10gb","7g.80gb"]}]}`)
	f.Add(`{"version":1,"pool":"x","form":"Exclusive","requests":[{"name":"a","count":16},{"name":"b","count":16}]}`)
	f.Add(`{"version":1,"pool":"x","form":"Shared","distinct":true,"requests":[{"name":"a","count":1},{"name":"b","count":1}]}`)
	f.Add(`{"version":1e0}`)
	f.Add("\xff\xfe{}")
	f.Fuzz(func(t *testing.T, encoded string) {
		canonical, err := Decode(encoded)
		if err != nil {
			return
		}
		again, err := canonical.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again != encoded {
			t.Errorf("decoded %q, encoded %q", encoded, again)
		}
		spec := Template(&canonical)
		if len(spec.Spec.Devices.Requests) != len(canonical.Requests) {
			t.Errorf("%d requests became %d", len(canonical.Requests), len(spec.Spec.Devices.Requests))
		}
	})
}

// Whatever limits a pod has, it is refused or becomes a request that can be read back.
func FuzzAdmit(f *testing.F) {
	f.Add("1", "10Gi", "30", "", true)
	f.Add("2", "100Gi", "0", "mig", false)
	f.Add("16", "1", "100", "whole", true)
	f.Fuzz(func(t *testing.T, gpus, memory, compute, pool string, init bool) {
		limits := quantities(map[string]string{"gpu": gpus, "gpu-memory": memory, "gpu-compute": compute})
		pod := makePod(main("a"), initial("i"))
		if pool != "" {
			inPool(pool)(pod)
		}
		pod.Spec.Containers[0].Resources.Limits = limits
		if init {
			pod.Spec.InitContainers[0].Resources.Limits = limits
		}
		pools := []Pool{asDefault(sharedPool("shared", 2)), migPool(a100, h100, a30), exclusivePool("whole", 1)}
		resolution, err := admit(pod, pools)
		if err != nil {
			return
		}
		encoded, err := resolution.Canonical.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(encoded); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
	})
}
