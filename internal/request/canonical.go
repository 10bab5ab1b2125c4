// SPDX-License-Identifier: Apache-2.0

package request

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Bounds of a canonical request. It travels in a pod's annotation, which its author can write, so a reader holds it
// against them. Requests and devices are bounded by what Kubernetes allows in one claim.
const (
	canonicalVersion = 1

	maxRequests    = 32
	maxDevices     = 32
	maxRequestName = 63
	maxPoolName    = 52
	// maxEncoded is more than the largest valid request takes.
	maxEncoded = 16 << 10

	hashLength     = 20
	templatePrefix = "sluice-"
)

// dnsLabel matches what Kubernetes calls a DNS label, but for its length.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Canonical is a request for devices in the one form that equal requests share. It holds all that its template is made
// from, and nothing that differs between pods that ask for the same.
type Canonical struct {
	// Version is the version of this form, 1.
	Version int `json:"version"`
	// Pool is the GPUPool that the devices come from.
	Pool string `json:"pool"`
	// Form is how the pool gives them out.
	Form Form `json:"form"`
	// Distinct is true where no two requests may get the same GPU; only in shared pools.
	Distinct bool `json:"distinct,omitempty"`
	// Requests are the claim's requests, ordered by name.
	Requests []Request `json:"requests"`
}

// Request is one request of a claim.
type Request struct {
	// Name is the request's name: that of the container it was made for.
	Name string `json:"name"`
	// Count is how many devices it gives.
	Count int64 `json:"count"`
	// MemoryMi is the memory of each device in Mi; 0: what the pool gives by default.
	MemoryMi int64 `json:"memoryMi,omitempty"`
	// Compute is the compute of each device in percent of a whole GPU; 0: what the pool gives by default.
	Compute int64 `json:"compute,omitempty"`
	// Profiles are the MIG profiles that may serve it, in the order of preference; only in MIG pools.
	Profiles []string `json:"profiles,omitempty"`
}

func (r Request) amounts() Amounts {
	return Amounts{GPUs: r.Count, MemoryMi: r.MemoryMi, Compute: r.Compute}
}

// Encode writes the request as JSON without spaces, fields in the order of the types.
func (c *Canonical) Encode() (string, error) {
	encoded, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the canonical request: %w", err)
	}
	return string(encoded), nil
}

// Hash is the content address of an encoded request: the first 20 hexadecimal digits of its SHA-256.
func Hash(encoded string) string {
	sum := sha256.Sum256([]byte(encoded))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// TemplateName is the name of the ResourceClaimTemplate for a hash.
func TemplateName(hash string) string { return templatePrefix + hash }

// HashOfTemplate is the hash in a template's name; false where the name is none that TemplateName makes.
func HashOfTemplate(name string) (hash string, ours bool) {
	hash, prefixed := strings.CutPrefix(name, templatePrefix)
	return hash, prefixed && IsHash(hash)
}

// IsHash says whether text has the form of a hash.
func IsHash(text string) bool {
	return len(text) == hashLength && strings.Trim(text, "0123456789abcdef") == ""
}

// Decode reads an encoded request. It refuses whatever Encode does not write: unknown fields, other spellings of the same
// content, values out of bounds.
func Decode(encoded string) (Canonical, error) {
	if len(encoded) > maxEncoded {
		return Canonical{}, fmt.Errorf("the canonical request has %d bytes, more than %d", len(encoded), maxEncoded)
	}
	decoder := json.NewDecoder(strings.NewReader(encoded))
	decoder.DisallowUnknownFields()
	var canonical Canonical
	if err := decoder.Decode(&canonical); err != nil {
		return Canonical{}, fmt.Errorf("reading the canonical request: %w", err)
	}
	if err := canonical.validate(); err != nil {
		return Canonical{}, fmt.Errorf("the canonical request is invalid: %w", err)
	}
	again, err := canonical.Encode()
	if err != nil {
		return Canonical{}, err
	}
	if !bytes.Equal([]byte(again), []byte(encoded)) {
		return Canonical{}, errors.New("the canonical request is not in canonical form")
	}
	return canonical, nil
}

func (c *Canonical) validate() error {
	switch {
	case c.Version != canonicalVersion:
		return fmt.Errorf("version is %d, not %d", c.Version, canonicalVersion)
	case !isDNSLabel(c.Pool, maxPoolName):
		return fmt.Errorf("%q names no pool", c.Pool)
	case c.Form != Shared && c.Form != Exclusive && c.Form != MIG:
		return fmt.Errorf("%q is no form", c.Form)
	case len(c.Requests) == 0 || len(c.Requests) > maxRequests:
		return fmt.Errorf("%d requests, not 1 to %d", len(c.Requests), maxRequests)
	case c.Distinct && (c.Form != Shared || len(c.Requests) == 1):
		return errors.New("distinct is for several requests of a shared pool")
	}
	for i := range c.Requests {
		if i > 0 && c.Requests[i-1].Name >= c.Requests[i].Name {
			return errors.New("requests are not ordered by name")
		}
		if err := c.Requests[i].validate(c.Form); err != nil {
			return fmt.Errorf("request %q: %w", c.Requests[i].Name, err)
		}
	}
	return checkTotals(c.Requests)
}

func (r *Request) validate(form Form) error {
	switch {
	case !isDNSLabel(r.Name, maxRequestName):
		return errors.New("the name is no DNS label")
	case r.Count < 1 || r.Count > MaxGPUs:
		return fmt.Errorf("count is %d, not 1 to %d", r.Count, MaxGPUs)
	case r.MemoryMi < 0 || r.MemoryMi > MaxMemoryMi:
		return fmt.Errorf("memoryMi is %d, not 0 to %d", r.MemoryMi, MaxMemoryMi)
	case r.Compute < 0 || r.Compute > MaxCompute:
		return fmt.Errorf("compute is %d, not 0 to %d", r.Compute, MaxCompute)
	case form == Exclusive && (r.MemoryMi > 0 || r.Compute > 0):
		return errors.New("an exclusive GPU is given whole, without amounts")
	case form != MIG && len(r.Profiles) > 0:
		return errors.New("profiles are for MIG pools")
	case form == MIG:
		return r.validateProfiles()
	}
	return nil
}

func (r *Request) validateProfiles() error {
	if len(r.Profiles) == 0 || len(r.Profiles) > maxAlternatives {
		return fmt.Errorf("%d profiles, not 1 to %d", len(r.Profiles), maxAlternatives)
	}
	if r.MemoryMi == 0 && r.Compute == 0 {
		return errors.New("neither memory nor compute")
	}
	seen := map[string]bool{}
	for _, profile := range r.Profiles {
		if !plainProfile.MatchString(profile) || seen[profile] {
			return fmt.Errorf("profile %q is unknown or given twice", profile)
		}
		seen[profile] = true
	}
	return nil
}

func isDNSLabel(text string, longest int) bool {
	return len(text) <= longest && dnsLabel.MatchString(text)
}
